//! Parts that the steps of a part share: the first that runs makes it, and it lasts as long as they
//! do.

use std::cell::{RefCell, RefMut};

use anyhow::Result;

/// Contents of `place`, made now where there are none.
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
