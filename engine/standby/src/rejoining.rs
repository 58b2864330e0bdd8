//! Return of a former writer as a standby (failback): its pool keeps the blocks that the newest
//! image also has.
//!
//! ```text
//!  another daemon has claimed the store ─▶ forget base images ─▶ mark the pool as a standby's ─▶
//!  follow: keep blocks that are saved and equal in the newest image, fetch the others
//! ```
//!
//! Base images are only in memory between the second and the last step, so an interruption leaves a
//! standby that fetches everything.

use image::{Claims, claims_of};
use volumes::CapacityClass;

use crate::adoption::{Bases, SavedIn};
use crate::choice::choose;
use crate::error::{StandbyError, StandbyErrorKind};
use crate::follower::{Follower, FollowerSpec};
use crate::key::open_store;

const ATTEMPT: &str = "make the pool of the former writer a standby";

impl Follower {
    /// Opens the pool of a former writer to follow the store that another daemon writes to now. All
    /// that was written after the last image of the pool is discarded, as are volumes that the
    /// newest image lacks. The pool is unchanged unless `is_taken_over` holds for the claims on the
    /// store, and the store has an image of the pool's set.
    pub fn rejoin(
        spec: FollowerSpec,
        is_taken_over: &mut dyn FnMut(&Claims) -> bool,
    ) -> Result<Self, StandbyError> {
        let no_image = || StandbyError::new(StandbyErrorKind::NoImage, ATTEMPT);
        let (store, _) = open_store(&spec.store, &spec.keys)?.ok_or_else(no_image)?;
        let claims = claims_of(&*store).map_err(StandbyError::image(ATTEMPT))?;
        if !is_taken_over(&claims) {
            return Err(StandbyError::new(StandbyErrorKind::NotTakenOver, ATTEMPT));
        }
        let image = choose(&store)?.image.ok_or_else(no_image)?;
        if spec.engine.set_id() != Some(image.summary().set_id) {
            return Err(StandbyError::new(StandbyErrorKind::OtherSet, ATTEMPT));
        }
        for volume in spec.engine.volumes() {
            let thinned = spec.engine.set_capacity(&volume.name(), CapacityClass::Thin);
            thinned.map_err(StandbyError::volume(ATTEMPT))?;
        }
        let saved = SavedIn::take(&spec.engine);
        spec.engine.begin_restoring();
        let follower = Self::open(spec)?;
        follower.lock_work().bases = Bases::of_former_writer(saved);
        Ok(follower)
    }
}
