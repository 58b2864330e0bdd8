//! Unix sockets in the file system.

use std::io;
use std::path::Path;

use anyhow::Context;
use tokio::net::UnixListener;

/// Listens at `path`. Must be called in a runtime. An existing socket is replaced atomically:
/// clients find the old or the new one. `restrict` sets the access rights of the file before it
/// gets its name.
///
/// # Errors
/// The file cannot be created, restricted or renamed.
pub fn bind_in_place(
    path: &Path,
    restrict: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<UnixListener> {
    let doing = |what: &str| format!("cannot {what} the socket {}", path.display());
    let name = path.file_name().with_context(|| doing("get the file name of"))?;
    // Hidden, so that programs that scan the directory for sockets, such as the kubelet, find only
    // complete ones.
    let new_path = path.with_file_name(format!(".{}.new", name.display()));
    remove_if_there(&new_path).with_context(|| doing("replace"))?;
    let listener = UnixListener::bind(&new_path).with_context(|| doing("make"))?;
    restrict(&new_path)?;
    std::fs::rename(&new_path, path).with_context(|| doing("place"))?;
    Ok(listener)
}

/// Removes a file if it exists.
///
/// # Errors
/// All errors of the system except a missing file.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_socket_takes_the_place_of_another_once_it_is_restricted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.sock");
        let first = bind_in_place(&path, |_| Ok(())).expect("it is free");
        let refused = bind_in_place(&path, |new| {
            assert!(new != path && new.exists());
            let name = new.file_name().expect("it has a name").to_string_lossy().into_owned();
            assert!(name.starts_with('.'), "who looks for sockets finds {name}");
            anyhow::bail!("not for {}", path.display())
        });
        refused.expect_err("it was not restricted");
        UnixStream::connect(&path).await.expect("the first is in its place");
        first.accept().await.expect("a client came");
        drop(first);
        let second = bind_in_place(&path, |_| Ok(())).expect("the one before is replaced");
        UnixStream::connect(&path).await.expect("the second is in its place");
        second.accept().await.expect("a client came");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn what_is_not_there_need_not_be_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.sock");
        std::fs::write(&path, "").expect("there is room");
        remove_if_there(&path).expect("it is there");
        assert!(!path.exists());
        remove_if_there(&path).expect("it is not there");
        remove_if_there(dir.path()).expect_err("it is a directory");
    }
}
