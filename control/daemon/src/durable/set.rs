//! Which durable set is served, and whether it has to be restored first.

use std::fmt::Write;

use anyhow::bail;
use volume::SetId;

/// What was found at the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'places> {
    pub(super) pool: Option<SetId>,
    /// The pool holds volumes that no interrupted restore has made.
    pub(super) pool_is_used: bool,
    pub(super) journal: Option<SetId>,
    pub(super) images: Option<SetId>,
    pub(super) places: Places<'places>,
}

/// Where things are, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'places> {
    pub(super) pool: &'places str,
    pub(super) journal: &'places str,
    pub(super) images: &'places str,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing is there yet: a new set begins.
    Begin,
    /// The pool's memory is as it was.
    GoOn(SetId),
    /// The pool's memory is gone; journal and images have the set.
    Restore(SetId),
}

/// Decides, or refuses with what to do.
pub(super) fn decide(found: &Found<'_>) -> anyhow::Result<Plan> {
    let Places { pool, journal, images } = found.places;
    if let (Some(in_journal), Some(in_images)) = (found.journal, found.images)
        && in_journal != in_images
    {
        bail!(
            "the journal in {journal} belongs to the durable set {}, and the images in {images} to \
             {}; move away, or configure elsewhere, the one that is not of this pool",
            name_of(in_journal),
            name_of(in_images)
        );
    }
    let on_disk = found
        .journal
        .map(|id| (id, "journal", journal))
        .or(found.images.map(|id| (id, "images", images)));
    match (found.pool, on_disk) {
        (None, None) => Ok(Plan::Begin),
        (Some(id), None) => Ok(Plan::GoOn(id)),
        (Some(id), Some((stored, ..))) if id == stored => Ok(Plan::GoOn(id)),
        (Some(id), Some((stored, what, place))) => bail!(
            "the pool in {pool} belongs to the durable set {}, and the {what} in {place} to {}; to \
             keep the pool, configure another place for journal and images; to restore what is \
             stored, delete the pool",
            name_of(id),
            name_of(stored)
        ),
        (None, Some((stored, what, place))) if found.pool_is_used => bail!(
            "the pool in {pool} holds volumes of no durable set, and the {what} in {place} belongs \
             to {}; to keep the pool, configure another place for journal and images; to restore \
             what is stored, delete the pool",
            name_of(stored)
        ),
        (None, Some((stored, ..))) => Ok(Plan::Restore(stored)),
    }
}

/// A set's id for people.
pub(super) fn name_of(id: SetId) -> String {
    id.iter().fold(String::new(), |mut name, byte| {
        write!(name, "{byte:02x}").expect("text can always grow");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<SetId> = Some([1; 16]);
    const TWO: Option<SetId> = Some([2; 16]);

    fn decision(
        pool: (Option<SetId>, bool),
        journal: Option<SetId>,
        images: Option<SetId>,
    ) -> Result<Plan, String> {
        let places = Places { pool: "/p", journal: "/j", images: "/i" };
        let (pool, pool_is_used) = pool;
        let found = Found { pool, pool_is_used, journal, images, places };
        decide(&found).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_refused(
        pool: (Option<SetId>, bool),
        journal: Option<SetId>,
        images: Option<SetId>,
        words: &[&str],
    ) {
        let refusal = decision(pool, journal, images).expect_err("they do not belong together");
        for word in words {
            assert!(refusal.contains(word), "{refusal}");
        }
    }

    #[test]
    fn what_is_not_there_yet_begins() {
        assert_eq!(decision((None, false), None, None), Ok(Plan::Begin));
        assert_eq!(decision((None, true), None, None), Ok(Plan::Begin));
    }

    #[test]
    fn a_pool_that_is_alive_goes_on() {
        assert_eq!(decision((ONE, true), ONE, ONE), Ok(Plan::GoOn([1; 16])));
        assert_eq!(decision((ONE, true), None, ONE), Ok(Plan::GoOn([1; 16])));
        assert_eq!(decision((ONE, false), ONE, None), Ok(Plan::GoOn([1; 16])));
        assert_eq!(decision((ONE, true), None, None), Ok(Plan::GoOn([1; 16])));
    }

    #[test]
    fn a_pool_that_was_lost_is_restored() {
        assert_eq!(decision((None, false), ONE, ONE), Ok(Plan::Restore([1; 16])));
        assert_eq!(decision((None, false), ONE, None), Ok(Plan::Restore([1; 16])));
        assert_eq!(decision((None, false), None, ONE), Ok(Plan::Restore([1; 16])));
    }

    #[test]
    fn what_does_not_belong_together_is_refused_by_both_names() {
        let (one, two) = (&name_of([1; 16])[..], &name_of([2; 16])[..]);
        check_refused((ONE, true), TWO, None, &["/p", one, "/j", two]);
        check_refused((ONE, true), None, TWO, &["/p", one, "/i", two]);
        check_refused((None, false), ONE, TWO, &["/j", one, "/i", two]);
        check_refused((None, true), TWO, None, &["/p", "/j", two, "no durable set"]);
    }
}
