//! A daemon with a key for journal and images: recovery, errors, and a change of the key.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use system::{Daemon, NbdClient, Request};

const MARKER: &[u8; 16] = b"nobody reads me!";

fn write_key(path: &Path, digit: char) -> Result<()> {
    fs::write(path, digit.to_string().repeat(64))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(())
}

fn flush_marker(daemon: &Daemon, block: u64) -> Result<()> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), "db")?;
    client.ask(&Request::Write { offset: block * 4096, data: MARKER.repeat(256) })?;
    client.ask(&Request::Flush)?;
    Ok(())
}

#[track_caller]
fn check_marker(daemon: &Daemon, block: u64) {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), "db").expect("it serves");
    let found = client.ask(&Request::Read { offset: block * 4096, length: 4096 });
    assert!(found.expect("it can be read") == MARKER.repeat(256), "block {block} is another");
}

/// Returns whether a file in the folder, or in a subfolder, contains the marker.
fn has_marker(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_found = match path.is_dir() {
            true => has_marker(&path)?,
            false => fs::read(&path)?.windows(16).any(|window| window == MARKER),
        };
        if is_found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[track_caller]
fn check_refused(daemon: &mut Daemon, why: &str) {
    let refusal = daemon.start_again().expect_err("it is not the key").to_string();
    assert!(refusal.contains(why), "{refusal}");
}

fn keys(daemon: &Daemon) -> Result<api::EncryptionStatus> {
    daemon.status()?.durability.encryption.context("it is encrypted")
}

/// Checks status, warnings and `memlane doctor` for an image that only the previous key opens.
fn check_key_of_images(daemon: &Daemon, wrapped_by: &str) -> Result<()> {
    let is_previous = keys(daemon)?.wrapped_by != wrapped_by;
    ensure!(keys(daemon)?.images_wrapped_by.as_deref() == Some(wrapped_by), "{:?}", keys(daemon)?);
    let warnings = daemon.status()?.warnings;
    let has_warning = warnings.iter().any(|warning| warning.kind == "image_key_previous");
    ensure!(has_warning == is_previous, "{warnings:?}");
    let (status, doctor) = (daemon.memlane("status")?, daemon.memlane("--json doctor")?);
    for text in [status, doctor] {
        ensure!(text.contains(&keys(daemon)?.data_key), "{text}");
        ensure!(text.contains("wrapped by the previous key") == is_previous, "{text}");
    }
    Ok(())
}

#[test]
fn an_encrypted_set_survives_with_its_key_and_is_refused_without() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (key, old) = (folder.path().join("key"), folder.path().join("key.old"));
    write_key(&key, '1')?;
    write_key(&old, '9')?;
    let flags = format!(
        "--no-fuse --journal-max-bytes 16MiB --encryption-key-file {} \
         --encryption-key-file-previous {}",
        key.display(),
        old.display()
    );
    let mut daemon = Daemon::start_flagged("96MiB".to_owned(), flags)?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    flush_marker(&daemon, 1)?;
    ensure!(keys(&daemon)?.images_wrapped_by.is_none(), "there is no image");
    daemon.save_image()?;
    flush_marker(&daemon, 2)?;
    let before = keys(&daemon)?;
    check_key_of_images(&daemon, &before.wrapped_by)?;
    ensure!(!has_marker(&daemon.folder().join("state"))?, "contents are on the disk");
    daemon.kill()?;

    // Also if the memory is intact.
    write_key(&key, '2')?;
    check_refused(&mut daemon, "configure the key that wrapped it");
    fs::set_permissions(&key, Permissions::from_mode(0o644))?;
    check_refused(&mut daemon, "run chmod 600");
    fs::remove_file(&key)?;
    check_refused(&mut daemon, "cannot read the encryption key");

    // Change of the key.
    write_key(&key, '2')?;
    write_key(&old, '1')?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    check_marker(&daemon, 1);
    check_marker(&daemon, 2);
    let now = keys(&daemon)?;
    ensure!(now.data_key == before.data_key && now.wrapped_by != before.wrapped_by, "{now:?}");
    check_key_of_images(&daemon, &before.wrapped_by)?;
    daemon.save_image()?;
    check_key_of_images(&daemon, &now.wrapped_by)?;
    write_key(&old, '9')?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    check_marker(&daemon, 2);

    // Only from the image store.
    let status = daemon.status()?;
    daemon.kill()?;
    fs::remove_dir_all(daemon.folder().join("state/journal"))?;
    daemon.lose_memory()?;
    let images = status.durability.images.context("there is a store")?;
    let number = images.last_image.context("an image was saved")?;
    let flags = daemon.flags().to_owned();
    daemon.set_flags(&format!("{flags} --accept-loss {number}"));
    daemon.start_again()?;
    check_marker(&daemon, 1);
    daemon.finish()
}
