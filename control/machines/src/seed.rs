//! cloud-init seed disk for the data source `NoCloud`: a FAT file system labelled `CIDATA` with two
//! or three files.
//!
//! File names longer than 8 characters require the feature `alloc` of the library `fatfs`.

use std::io::{self, Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};

/// Size of the disk. It has room for the longest files, and is close to FAT's minimum.
pub(crate) const SEED_BYTES: usize = 1 << 20;

const LABEL: [u8; 11] = *b"CIDATA     ";

/// cloud-init data of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed<'a> {
    /// Host name of the guest.
    pub(crate) name: &'a str,
    /// Instance id. cloud-init runs once for each id.
    pub(crate) instance: &'a str,
    pub(crate) user_data: &'a str,
    pub(crate) network_config: Option<&'a str>,
}

impl Seed<'_> {
    /// Returns the bytes of the disk.
    pub(crate) fn image(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; SEED_BYTES];
        let mut disk = Cursor::new(bytes.as_mut_slice());
        fatfs::format_volume(&mut disk, FormatVolumeOptions::new().volume_label(LABEL))?;
        let Self { name, instance, .. } = self;
        let meta_data = format!("instance-id: {instance}\nlocal-hostname: {name}\n");
        let files = [
            ("meta-data", Some(meta_data.as_str())),
            ("user-data", Some(self.user_data)),
            ("network-config", self.network_config),
        ];
        let system = FileSystem::new(&mut disk, FsOptions::new())?;
        for (name, text) in files {
            if let Some(text) = text {
                let mut file = system.root_dir().create_file(name)?;
                file.truncate()?;
                file.write_all(text.as_bytes())?;
            }
        }
        system.unmount()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_disk_has_the_label_and_the_files() {
        let long = "#cloud-config\n".repeat(4000);
        let seed = Seed {
            name: "web",
            instance: "memlane-7",
            user_data: &long,
            network_config: Some("version: 2\n"),
        };
        let mut bytes = seed.image().expect("it has room");
        let system = FileSystem::new(Cursor::new(bytes.as_mut_slice()), FsOptions::new());
        let system = system.expect("it is a file system");
        assert_eq!(system.volume_label_as_bytes(), b"CIDATA");
        let read = |name: &str| {
            let mut text = String::new();
            let mut file = system.root_dir().open_file(name).expect(name);
            file.read_to_string(&mut text).expect(name);
            text
        };
        assert_eq!(read("meta-data"), "instance-id: memlane-7\nlocal-hostname: web\n");
        assert_eq!(read("user-data"), long);
        assert_eq!(read("network-config"), "version: 2\n");
    }
}
