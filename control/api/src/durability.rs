//! Data at risk in a power loss, and the state of journal, images and encryption.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of journal and images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DurabilityStatus {
    pub at_risk: AtRisk,
    /// Time needed to save an image; null until the throughput of the store is measured.
    #[schema(required)]
    pub hold_up: Option<HoldUp>,
    /// Null if journal and images are not encrypted.
    #[schema(required)]
    pub encryption: Option<EncryptionStatus>,
    /// Null while there is no volume of the class `journal`.
    #[schema(required)]
    pub journal: Option<JournalStatus>,
    /// Null while there is no store for images.
    #[schema(required)]
    pub images: Option<ImagesStatus>,
}

/// Bytes that would be lost if power failed now, before reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AtRisk {
    /// Everything in volumes of the class `ram`.
    pub ram_bytes: u64,
    /// Bytes written to volumes of the class `image` since their last image.
    pub image_bytes: u64,
    /// Bytes written to volumes of the class `journal` and not flushed yet.
    pub journal_bytes: u64,
}

/// Time needed on backup power to save the volumes of class `image`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HoldUp {
    /// Bytes to be saved.
    pub bytes: u64,
    /// Throughput of the last save or rehearsal.
    pub bytes_per_second: u64,
    #[schema(minimum = 0)]
    pub seconds: f64,
    /// Time of that measurement, in seconds since 1970.
    pub measured_unix_seconds: u64,
}

/// Keys of journal and images, by their ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EncryptionStatus {
    /// The data key, which encrypts journal and images.
    pub data_key: String,
    /// The configured key, which encrypts the data key.
    pub wrapped_by: String,
    /// The key that encrypts the newest copy of the data key in the image store. If it differs from
    /// `wrapped_by`, it is the previous key, which the store still needs. Null without an image, or
    /// while the store does not respond.
    #[schema(required)]
    pub images_wrapped_by: Option<String>,
}

/// State of the journal for flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalState {
    /// Flushes succeed.
    Ok,
    /// Flushes wait until the disk accepts writes again; `cause` says why.
    Waiting,
    /// Flushes fail, and volumes of the class `journal` reject writes; `cause` says why.
    ReadOnly,
}

/// The log on disk that makes flushes durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalStatus {
    pub dir: String,
    pub state: JournalState,
    /// Error of the disk; null if there is none.
    #[schema(required)]
    pub cause: Option<String>,
    /// Bytes that the journal takes on the disk.
    pub used_bytes: u64,
    /// Maximum size in bytes. A checkpoint frees space before it is reached.
    pub max_bytes: u64,
    /// Transactions since the start: each serves all flushes that waited for it.
    pub transactions: u64,
    /// Flushes since the start.
    pub flushes: u64,
}

/// The store that images are saved to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImagesStatus {
    /// A directory, or the URL of an object store.
    pub store: String,
    /// The newest image.
    #[schema(required)]
    #[schema(minimum = 1)]
    pub last_image: Option<u64>,
    /// Time of that save, in seconds since 1970.
    #[schema(required)]
    pub last_saved_unix_seconds: Option<u64>,
    /// Interval between images; null if images are saved on request only.
    #[schema(required)]
    pub every_seconds: Option<u64>,
    /// Journal in the store; null if it is not shipped.
    #[schema(required)]
    #[serde(default)]
    pub shipping: Option<ShippingStatus>,
    /// Flushes that wait for the store; null if they do not.
    #[schema(required)]
    #[serde(default)]
    pub mirror: Option<MirrorStatus>,
    /// Why the last save failed; null if it succeeded.
    #[schema(required)]
    pub failure: Option<String>,
    /// Bytes of restored volumes that are still to be fetched; they are served meanwhile.
    pub to_fetch_bytes: u64,
    /// Part of `to_fetch_bytes` that could not be fetched when last tried. Reads of it fail; the
    /// daemon retries.
    pub unfetched_bytes: u64,
    /// Objects that hold those bytes; a long list is cut.
    pub unfetched: Vec<UnfetchedObject>,
}

/// The journal that is shipped to the image store, for a standby.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShippingStatus {
    /// Time since all of the journal was in the store: what was flushed since then is lost with
    /// this host. Null before the first image of this daemon.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub lag_seconds: Option<f64>,
    /// Bytes of the journal that are not in the store yet.
    pub lag_bytes: u64,
    /// Why the last attempt failed; null if it succeeded.
    #[schema(required)]
    pub failure: Option<String>,
}

/// Behaviour of flushes of class `journal` while the image store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MirrorPolicy {
    /// They wait until it answers.
    Wait,
    /// They fail after a time limit.
    Fail,
    /// After a time limit they are acknowledged without it.
    Alone,
}

/// State of mirrored flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MirrorState {
    /// The store has everything that was acknowledged.
    InSync,
    /// The same, and flushes have waited for the store for seconds.
    Waiting,
    /// Flushes are acknowledged without the store.
    Alone,
    /// Flushes wait again; the store still lacks what was acknowledged without it.
    CatchingUp,
    /// Another daemon has taken over the store. Flushes fail.
    TakenOver,
}

/// Flushes of class `journal` that are acknowledged once the image store has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorStatus {
    pub policy: MirrorPolicy,
    pub state: MirrorState,
    /// Why the store is waited for, or flushes fail; null if all is well.
    #[schema(required)]
    pub cause: Option<String>,
    /// Flushes and changes of volumes that wait for the store now.
    pub waiting: u64,
    /// Number that failed since the daemon started.
    pub failed: u64,
    /// Number acknowledged without the store since the daemon started.
    pub acknowledged_alone: u64,
}

/// An object of the image store that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnfetchedObject {
    /// Its name in the store.
    pub object: String,
    /// Why it cannot be read.
    pub cause: String,
    /// Volumes and snapshots that need the object, with their bytes in it.
    pub volumes: Vec<VolumeBytes>,
}

/// Bytes of one volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeBytes {
    pub name: String,
    pub bytes: u64,
}
