//! A folder does what each image store must do, whether this process serves it to other hosts or
//! not.

mod made;
mod store_cases;

use std::sync::Arc;

use image::{FolderStore, ImageStore};
use made::{disk, store_on};
use store_cases::{check_store, sealed};

fn serving() -> Arc<dyn ImageStore> {
    Arc::new(FolderStore::serving(&*disk().folder()).expect("the disk is sound"))
}

#[test]
fn images_are_kept_in_a_folder() {
    check_store(&store_on(&disk()));
    check_store(&sealed(store_on(&disk())));
}

#[test]
fn images_are_kept_in_a_folder_that_is_served() {
    check_store(&serving());
    check_store(&sealed(serving()));
}
