//! Images: saved, restored, verified and deleted.

use api::{Image, ImageRestore, ImageSave, Problem, Task};

use crate::service::Service;
use crate::service::snapshots::not_available;

impl Service {
    pub(crate) fn list_images(&self) -> Result<Vec<Image>, Problem> {
        Err(not_available("images are"))
    }

    pub(crate) fn show_image(&self, _number: u64) -> Result<Image, Problem> {
        Err(not_available("images are"))
    }

    pub(crate) fn delete_image(&self, _number: u64) -> Result<(), Problem> {
        Err(not_available("images are"))
    }

    pub(crate) fn save_image(&self, _request: &ImageSave) -> Result<Task, Problem> {
        Err(not_available("images are"))
    }

    pub(crate) fn restore_image(
        &self,
        _number: u64,
        _request: &ImageRestore,
    ) -> Result<Task, Problem> {
        Err(not_available("images are"))
    }

    pub(crate) fn verify_image(&self, _number: u64) -> Result<Task, Problem> {
        Err(not_available("images are"))
    }

    pub(crate) fn rehearse_image(&self) -> Result<Task, Problem> {
        Err(not_available("images are"))
    }
}
