//! State shared by the steps of a part: created by the first that runs, and dropped with the last.

use std::cell::{RefCell, RefMut};

use anyhow::Result;

/// Returns the contents of `place`, creating them if it is empty.
pub(crate) fn make_once<T>(
    place: &RefCell<Option<T>>,
    make: impl FnOnce() -> Result<T>,
) -> Result<RefMut<'_, T>> {
    let mut place = place.borrow_mut();
    if place.is_none() {
        *place = Some(make()?);
    }
    Ok(RefMut::map(place, |it| it.as_mut().expect("it was made")))
}
