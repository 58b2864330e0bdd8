//! StorageClass parameters.

use std::collections::BTreeMap;

use api::{Capacity, Durability, Reduction, SectorBytes, Volume, VolumeMirror};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use tonic::Status;

/// Prefix of the parameters that the external-provisioner adds about a claim.
const KUBERNETES: &str = "csi.storage.k8s.io/";

/// Parameters about the claim, and the labels that they become.
const ORIGINS: [(&str, &str); 3] = [
    ("csi.storage.k8s.io/pvc/name", "kubernetes/claim"),
    ("csi.storage.k8s.io/pvc/namespace", "kubernetes/namespace"),
    ("csi.storage.k8s.io/pv/name", "kubernetes/volume"),
];

/// Label with the file system of a volume, used if the pod does not specify one.
pub(crate) const FILESYSTEM_LABEL: &str = "csi/filesystem";

/// Upper limit of the `overcommit` parameter.
const OVERCOMMIT_MAX: u64 = 100;

/// Supported file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Filesystem {
    #[default]
    Ext4,
    Xfs,
}

impl Filesystem {
    pub(crate) fn of_word(word: &str) -> Result<Self, Status> {
        match word {
            "" | "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            other => Err(Status::invalid_argument(format!(
                "unsupported file system {other:?}; use ext4 or xfs"
            ))),
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Minimum size of the device.
    pub(crate) fn size_bytes_min(self) -> u64 {
        match self {
            Self::Ext4 => 1 << 20,
            Self::Xfs => 300 << 20,
        }
    }
}

/// Volume properties from a StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) durability: Durability,
    pub(crate) capacity: Capacity,
    pub(crate) reduction: Reduction,
    pub(crate) mirror: VolumeMirror,
    pub(crate) sector_bytes: SectorBytes,
    pub(crate) filesystem: Filesystem,
    /// Multiple of the pool's free space up to which thin volumes are created.
    pub(crate) overcommit: u64,
    /// Labels that identify the claim.
    pub(crate) labels: BTreeMap<String, String>,
}

impl Class {
    /// Parses StorageClass parameters. Rejects unknown keys and values, because a typo must not be
    /// ignored.
    pub(crate) fn of(parameters: &BTreeMap<String, String>) -> Result<Self, Status> {
        let mut class = Self { overcommit: 1, ..Self::default() };
        for (key, word) in parameters {
            match key.as_str() {
                "durability" => class.durability = known(key, word)?,
                "capacity" => class.capacity = known(key, word)?,
                "reduction" => class.reduction = known(key, word)?,
                "mirror" => class.mirror = known(key, word)?,
                "sector" => class.sector_bytes = sector(word)?,
                "filesystem" => class.filesystem = Filesystem::of_word(word)?,
                "overcommit" => class.overcommit = overcommit(word)?,
                _ => match ORIGINS.iter().find(|(origin, _)| origin == key) {
                    Some((_, label)) => {
                        class.labels.insert((*label).to_owned(), word.clone());
                    }
                    None if key.starts_with(KUBERNETES) => {}
                    None => return Err(unknown(key)),
                },
            }
        }
        Ok(class)
    }

    /// Returns the first property in which the volume differs from the class.
    pub(crate) fn difference(&self, volume: &Volume) -> Option<&'static str> {
        let filesystem = volume.labels.get(FILESYSTEM_LABEL).map_or("", String::as_str);
        [
            (self.durability == volume.durability, "durability"),
            (self.capacity == volume.capacity, "capacity"),
            (self.reduction == volume.reduction, "reduction"),
            (self.mirror == volume.mirror, "mirror"),
            (self.sector_bytes == volume.sector_bytes, "sector"),
            (self.filesystem.word() == filesystem, "filesystem"),
        ]
        .into_iter()
        .find_map(|(is_same, property)| (!is_same).then_some(property))
    }
}

fn known<T: for<'a> Deserialize<'a>>(key: &str, word: &str) -> Result<T, Status> {
    let word: StrDeserializer<'_, Error> = word.into_deserializer();
    T::deserialize(word).map_err(|error| {
        Status::invalid_argument(format!("invalid {key} in the StorageClass: {error}"))
    })
}

fn sector(word: &str) -> Result<SectorBytes, Status> {
    let bytes = word.parse::<u32>().map_err(|_| format!("{word:?} is not a number"));
    bytes.and_then(SectorBytes::try_from).map_err(|why| {
        Status::invalid_argument(format!("invalid sector in the StorageClass: {why}"))
    })
}

fn overcommit(word: &str) -> Result<u64, Status> {
    let times = word.parse().ok().filter(|times| (1..=OVERCOMMIT_MAX).contains(times));
    times.ok_or_else(|| {
        let rule = format!("a whole number from 1 to {OVERCOMMIT_MAX}");
        Status::invalid_argument(format!(
            "invalid overcommit {word:?} in the StorageClass; use \
                                          {rule}"
        ))
    })
}

fn unknown(key: &str) -> Status {
    Status::invalid_argument(format!(
        "unknown parameter {key:?} in the StorageClass; parameters are durability, capacity, \
         mirror, reduction, sector, filesystem, overcommit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(parameters: &[(&str, &str)]) -> Result<Class, Status> {
        let pair = |(key, word): &(&str, &str)| ((*key).to_owned(), (*word).to_owned());
        Class::of(&parameters.iter().map(pair).collect())
    }

    #[test]
    fn a_class_says_what_its_volumes_are() {
        let read = class(&[
            ("durability", "journal"),
            ("capacity", "guaranteed"),
            ("reduction", "none"),
            ("mirror", "no"),
            ("sector", "4096"),
            ("filesystem", "xfs"),
            ("overcommit", "3"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/later", "x"),
        ]);
        let read = read.expect("all is known");
        assert_eq!(read.durability, Durability::Journal);
        assert_eq!(read.capacity, Capacity::Guaranteed);
        assert_eq!(read.reduction, Reduction::None);
        assert_eq!(read.mirror, VolumeMirror::No);
        assert_eq!(read.sector_bytes, SectorBytes::Bytes4096);
        assert_eq!((read.filesystem, read.overcommit), (Filesystem::Xfs, 3));
        assert_eq!(read.labels["kubernetes/claim"], "data");
        assert_eq!(read.labels.len(), 1);
        let plain = class(&[]).expect("nothing is needed");
        assert_eq!((plain.filesystem, plain.overcommit), (Filesystem::Ext4, 1));
    }

    #[test]
    fn what_a_class_cannot_say_is_refused_by_name() {
        for (key, word) in [
            ("durability", "disk"),
            ("capacity", "thick"),
            ("reduction", ""),
            ("mirror", "maybe"),
            ("sector", "1024"),
            ("sector", "x"),
            ("filesystem", "btrfs"),
            ("overcommit", "0"),
            ("overcommit", "1.5"),
            ("durabilty", "journal"),
        ] {
            let refused = class(&[(key, word)]).expect_err(key);
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            let named = if key == "filesystem" { word } else { key };
            assert!(refused.message().contains(named), "{refused}");
        }
    }
}
