//! Standby: a daemon that follows the image store of another daemon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of following.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StandbyState {
    /// The store contains no image yet.
    Waiting,
    /// The newest image is still being loaded into memory.
    Fetching,
    /// Volumes are readable as of the newest image.
    Following,
    /// The store cannot be followed; `cause` says why. The daemon retries.
    Failing,
}

/// Promise of a store's writer about acknowledged flushes of class `journal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StandbyMirroring {
    /// They may be on its host only.
    Off,
    /// They are in the store, unless that did not answer in time.
    MayStop,
    /// They are in the store.
    Always,
}

/// A newer image that is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedImage {
    pub number: u64,
    /// Why it cannot be read.
    pub cause: String,
}

/// A standby, and its distance from the daemon that it follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Standby {
    pub state: StandbyState,
    /// Why following fails, or what it waits for; null if all is well.
    #[schema(required)]
    pub cause: Option<String>,
    /// Directory or URL of the image store.
    pub store: String,
    /// The image that readers of volumes see; null before the first is complete.
    #[schema(required)]
    pub image: Option<u64>,
    /// Newest image in the store that a promotion would use, as last listed.
    #[schema(required)]
    pub newest_image: Option<u64>,
    /// Time at which that was saved, in seconds since 1970, by the clock of the host that saved it.
    #[schema(required)]
    pub newest_saved_unix_seconds: Option<u64>,
    /// Time since then, whose writes a loss of the writer would lose. Null if it is not known:
    /// there is no image yet, or the clocks of the hosts differ.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub lag_seconds: Option<f64>,
    /// The same for flushes of class `journal`, whose journal the writer ships: time since the
    /// newest part of it that could be replayed. Null if none was shipped after the image.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub journal_lag_seconds: Option<f64>,
    /// Promise of the writer about acknowledged flushes of class `journal`.
    pub mirroring: StandbyMirroring,
    /// Where a replay would end although more was shipped; null if all could be replayed.
    #[schema(required)]
    pub journal_gap: Option<String>,
    /// Bytes of the newest image that are not in memory yet.
    pub lag_bytes: u64,
    /// Newer images that are damaged or incomplete.
    pub skipped: Vec<SkippedImage>,
}

/// A request to promote a standby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StandbyPromote {
    /// Promote although the writer seems to be alive, or the loss is not known.
    pub force: bool,
    /// Promote although flushes that the writer acknowledged are or may be lost.
    pub accept_loss: bool,
}

/// A promoted standby. Its volumes are writable once it has restarted. A repeated request gets the
/// same answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Promotion {
    /// The image that the volumes come from.
    pub image: u64,
    /// Time at which that was saved, in seconds since 1970, by the clock of the host that saved it.
    pub saved_unix_seconds: u64,
    /// Time since then, whose writes are lost; null if it is not known.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub lost_seconds: Option<f64>,
    /// The same for flushes of class `journal`, whose journal was shipped; null if none was.
    #[schema(required)]
    #[schema(minimum = 0)]
    #[serde(default)]
    pub journal_lost_seconds: Option<f64>,
    /// True if every flush of class `journal` that the writer acknowledged is there, of all volumes
    /// that are not in `unmirrored`: it mirrored them. False if that is not known.
    #[serde(default)]
    pub is_complete: bool,
    /// Volumes of class `journal` with `mirror` = `no`. Their last flushes may be lost.
    #[serde(default)]
    pub unmirrored: Vec<String>,
    /// Transactions of the journal that were shipped after the image, and replayed.
    #[serde(default)]
    pub replayed_transactions: u64,
    /// Where the replay ended although more was shipped; null if all was replayed.
    #[schema(required)]
    #[serde(default)]
    pub replay_ended: Option<String>,
    /// Bytes still to be fetched, on access and in the background.
    pub to_fetch_bytes: u64,
    /// Guaranteed volumes that became thin for lack of memory.
    pub guarantees_lost: Vec<String>,
    /// True if the daemon had been promoted before this request, which changed nothing. All else is
    /// as it was at the promotion.
    pub is_repeated: bool,
}
