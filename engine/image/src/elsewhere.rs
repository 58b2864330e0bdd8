//! Alternative copies of an image's chunks in other images of the store. An image saved while a
//! pack was sparse has the rest of that pack's contents again in another pack.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::format::chunk::{ChunkPlace, Digest};
use crate::format::manifest::Manifest;
use crate::manifests::{ManifestState, read_state};
use crate::names::PackPlace;
use crate::store::ImageStore;

/// Maximum number of images searched, newest first.
const IMAGES_MAX: usize = 64;

/// Maximum age of cached search results.
const AGE_MAX: Duration = Duration::from_secs(60);

/// Cached locations of one image's chunks in other images.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    looked: Option<Instant>,
    places: HashMap<Digest, Vec<PackPlace>>,
}

impl Elsewhere {
    /// Returns other locations of a chunk of `image`. Unreadable images are skipped.
    pub(crate) fn places(
        &self,
        store: &dyn ImageStore,
        image: &Manifest,
        place: &ChunkPlace,
    ) -> Vec<ChunkPlace> {
        let mut found = self.lock();
        if found.looked.is_none_or(|looked| looked.elapsed() > AGE_MAX) {
            found.places = find(store, image);
            found.looked = Some(Instant::now());
        }
        let others = found.places.get(&place.digest).into_iter().flatten();
        others.map(|&at| ChunkPlace { at, ..*place }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().expect("no thread panics with it locked")
    }
}

fn find(store: &dyn ImageStore, image: &Manifest) -> HashMap<Digest, Vec<PackPlace>> {
    let own_places: HashSet<_> =
        image.chunks.iter().map(|chunk| image.place_of(chunk).at).collect();
    let own_digests: HashSet<&Digest> = image.chunks.iter().map(|chunk| &chunk.digest).collect();
    let mut places: HashMap<Digest, Vec<PackPlace>> = HashMap::new();
    let images = store.images().unwrap_or_default();
    let others = images.into_iter().rev().filter(|(number, _)| *number != image.id.number());
    for (number, size_bytes) in others.take(IMAGES_MAX) {
        let Ok(ManifestState::Whole(other)) = read_state(store, number, size_bytes) else {
            continue;
        };
        for chunk in other.chunks.iter().filter(|chunk| own_digests.contains(&chunk.digest)) {
            let place = other.place_of(chunk).at;
            let known = places.entry(chunk.digest).or_default();
            if !own_places.contains(&place) && !known.contains(&place) {
                known.push(place);
            }
        }
    }
    places.retain(|_, known| !known.is_empty());
    places
}
