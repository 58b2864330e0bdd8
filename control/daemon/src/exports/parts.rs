//! What exports need of the rest of the daemon.

use std::sync::Arc;

use adaptive_polling::SpinPermits;

use crate::exports::catalog::Catalog;
use crate::http::AccessRule;
use crate::volume_users::VolumeUsers;

#[derive(Clone)]
pub(crate) struct ExportParts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) rule: AccessRule,
    pub(crate) users: Arc<VolumeUsers>,
    pub(crate) spin_permits: Arc<SpinPermits>,
}
