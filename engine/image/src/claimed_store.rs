//! Exclusive writer of a store: saves images, deletes old ones, and removes unreferenced packs.
//!
//! Numbers fence writers. Each image takes the next number by creating its manifest under it, which
//! succeeds for one writer only. Claiming a store also takes a number. A writer that claimed the
//! store earlier therefore finds its next number taken and fails before changing any image. Numbers
//! of images and chunks are never reused in a store as long as its newest manifest is readable.
//!
//! Numbers are taken without gaps. The manifest with the highest number is never removed, nor is a
//! fence with which one daemon took over from another. So the number after that of a writer is
//! taken if and only if another one has claimed the store ([`OwnNumber`]), and stays taken.
//!
//! Before each removal the claim is checked again. Packs are listed before that check, so an
//! unreferenced pack in the list does not belong to another writer and never will.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::catalog::is_stored;
use crate::claims::{Claims, Found, claims_in, find, newest_image, unreadable, whole};
use crate::error::{ImageError, ImageErrorKind};
use crate::format::manifest::{Manifest, ManifestKind};
use crate::manifests::ManifestState;
use crate::names::{ChunkNumber, ImageId, PackName};
use crate::own_number::OwnNumber;
use crate::save::{Prepared, Save, SaveOptions};
use crate::saved::Saved;
use crate::source::LeafSource;
use crate::store::{ImageStore, ObjectName};
use crate::store_writer::StoreWriter;
use crate::watch::Watch;

/// Maximum number of attempts to find a free number while other writers take it.
const CLAIM_TRIES_MAX: u32 = 16;

/// Chunk numbers skipped per unreadable manifest, because it may have assigned some.
const CHUNK_NUMBERS_LEFT_OUT: u64 = 1 << 24;

/// Number of old fences kept besides those with which one daemon took over from another.
const FENCES_KEPT: usize = 16;

/// Objects that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub images: Vec<u32>,
    pub pack_count: u64,
    pub pack_bytes: u64,
}

/// Counts of extracts that were removed and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedExtracts {
    pub removed: u64,
    pub kept: u64,
}

/// A store claimed for exclusive writing by this process.
#[derive(Debug)]
pub struct ClaimedStore {
    store: Arc<dyn ImageStore>,
    salt: u32,
    next_number: u32,
    own_number: OwnNumber,
    next_chunk: u64,
    next_pack: PackName,
    head: Option<ImageId>,
    /// Set if creating the manifest of the last save failed. The manifest may exist nevertheless.
    has_failed: bool,
    /// Numbers of images known to be durable.
    durable: HashSet<u32>,
    /// Identity of this process in its fences.
    writer: StoreWriter,
}

impl ClaimedStore {
    /// Claims the store for this writer. Writers that claimed it earlier can no longer save.
    pub fn claim(
        store: Arc<dyn ImageStore>,
        writer: impl Into<StoreWriter>,
    ) -> Result<Self, ImageError> {
        Self::claim_after(store, writer, &mut |_| Ok(()))
    }

    /// Claims the store if `approve` accepts its current claims. `approve` is called again if
    /// another writer claims the store meanwhile, so it sees every claim that is superseded. If it
    /// fails, the store is unchanged.
    pub fn claim_after(
        store: Arc<dyn ImageStore>,
        writer: impl Into<StoreWriter>,
        approve: &mut dyn FnMut(&Claims) -> Result<(), ImageError>,
    ) -> Result<Self, ImageError> {
        let writer = writer.into();
        for _ in 0..CLAIM_TRIES_MAX {
            let found = find(&*store)?;
            let mut claimed = Self::prepare(Arc::clone(&store), writer.clone(), &found)?;
            approve(&claims_in(&found))?;
            match claimed.put_fence() {
                Err(error) if error.kind == ImageErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    claimed.check_exclusive()?;
                    if claimed.is_newest()? {
                        return Ok(claimed);
                    }
                    // The number had become free since the manifests were found: its owner has
                    // saved more images and removed this one. A fence there would pass for the
                    // claim under which they were saved.
                    claimed.store.remove(ObjectName::Image(claimed.next_number - 1))?;
                }
            }
        }
        let attempt = "claim the store for writing images";
        let why = format!("other daemons claimed it first, {CLAIM_TRIES_MAX} times");
        Err(ImageError::new(ImageErrorKind::Fenced, attempt).with_source(why))
    }

    pub fn store(&self) -> &Arc<dyn ImageStore> {
        &self.store
    }

    /// Returns the highest number that this claim has taken, from now on.
    pub fn own_number(&self) -> OwnNumber {
        self.own_number.clone()
    }

    /// Returns the id of the newest intact image.
    pub fn head(&self) -> Option<ImageId> {
        self.head
    }

    /// Saves an image, which is durable on return. After a failure the store has the previous
    /// images and possibly this one: a manifest whose creation failed may exist nevertheless, or
    /// appear after a power loss. The next save takes another number.
    pub fn save(
        &mut self,
        source: &dyn LeafSource,
        options: &SaveOptions,
        watch: &dyn Watch,
    ) -> Result<Saved, ImageError> {
        self.settle_failed()?;
        let save = Save {
            store: &*self.store,
            source,
            options,
            watch,
            id: ImageId::new(self.salt, self.next_number),
            head: self.head,
            next_chunk: self.next_chunk,
            first_pack: self.next_pack,
        };
        let (begun, packs) = channel();
        let prepared = save.prepare(begun);
        let packs: Vec<PackName> = packs.iter().collect();
        self.next_pack.index += u32::try_from(packs.len()).expect("packs are long");
        let prepared = prepared.inspect_err(|_| self.remove_packs(&packs))?;
        match publish(&*self.store, prepared) {
            Ok((manifest, saved)) => {
                self.next_chunk = manifest.next_chunk;
                self.note_taken();
                self.head = Some(manifest.id);
                self.durable.insert(manifest.id.number());
                Ok(saved)
            }
            Err(error) => {
                // If the number is taken by another writer's manifest, ours does not exist.
                // Otherwise it may exist and need its packs, which are collected once it is known
                // not to.
                if error.kind == ImageErrorKind::AlreadyExists {
                    self.remove_packs(&packs);
                    return Err(self.fenced(error.attempt));
                }
                self.has_failed = true;
                Err(error)
            }
        }
    }

    /// Resolves the outcome of a failed manifest creation. The manifest may still be in flight or
    /// appear after a power loss. A fence under its number prevents that, because its packs will be
    /// removed.
    fn settle_failed(&mut self) -> Result<(), ImageError> {
        if !self.has_failed {
            return Ok(());
        }
        match self.put_fence() {
            Err(error) if error.kind == ImageErrorKind::AlreadyExists => {
                self.leave_number(error)?;
            }
            other => other?,
        }
        self.has_failed = false;
        Ok(())
    }

    /// Skips the next number if this writer took it. Fails if another writer did, or if the owner
    /// is unknown.
    fn leave_number(&mut self, taken_error: ImageError) -> Result<(), ImageError> {
        let found = self.find()?;
        let taken = found.into_iter().find(|found| found.number == self.next_number);
        match taken.map(|found| found.state) {
            Some(ManifestState::Unfinished) => self.note_taken(),
            // Another writer would have claimed the store with a fence under that number.
            Some(ManifestState::Whole(manifest)) if manifest.kind == ManifestKind::Image => {
                self.note_taken();
                self.next_chunk = manifest.next_chunk;
                self.head = Some(manifest.id);
            }
            Some(ManifestState::Whole(fence)) if fence.writer().id == self.writer.id => {
                self.note_taken();
            }
            Some(ManifestState::Whole(_)) => return Err(self.fenced(taken_error.attempt)),
            Some(ManifestState::Unreadable(error)) => {
                let attempt = format!("determine which daemon wrote image {}", self.next_number);
                return Err(ImageError::new(error.kind, attempt).with_source(error));
            }
            None => {
                let attempt = format!("determine which daemon wrote image {}", self.next_number);
                let unknown = ImageError::new(ImageErrorKind::Unavailable, attempt);
                return Err(unknown.with_source(taken_error));
            }
        }
        Ok(())
    }

    /// Deletes an image. The next collection removes its packs.
    pub fn delete(&mut self, number: u32, in_use: &[ImageId]) -> Result<(), ImageError> {
        let attempt = || format!("delete image {number}");
        self.settle_failed()?;
        let mut found = self.find()?;
        check_in_use(&found, in_use)?;
        let is_fence =
            |known: &Found| whole(known).is_some_and(|it| it.kind == ManifestKind::Fence);
        let is_it = |known: &Found| known.number == number && !is_fence(known);
        let Some(at) = found.iter().position(is_it) else {
            return Err(ImageError::new(ImageErrorKind::NotFound, attempt()));
        };
        if in_use.iter().any(|id| id.number() == number) {
            return Err(ImageError::new(ImageErrorKind::InUse, attempt()));
        }
        found.remove(at);
        if at == found.len() {
            // It was the newest. The fence keeps its number from being reused.
            self.put_fence().map_err(|error| match error.kind {
                ImageErrorKind::AlreadyExists => self.fenced(error.attempt),
                _ => error,
            })?;
        }
        let rest = newest_image(&found).map(|manifest| manifest.id);
        self.confirm(rest.map(|id| id.number()).as_slice())?;
        self.remove(ObjectName::Image(number))?;
        if self.head.is_some_and(|head| head.number() == number) {
            self.head = rest;
        }
        Ok(())
    }

    /// Deletes old images. Keeps the newest `newest_count` images (at least one), the same number
    /// of intact ones, labelled ones, and those that volumes still read from. Then removes
    /// unreferenced packs.
    pub fn retain(
        &mut self,
        newest_count: usize,
        in_use: &[ImageId],
    ) -> Result<Removed, ImageError> {
        let newest_count = newest_count.max(1);
        self.settle_failed()?;
        let found = self.find()?;
        check_in_use(&found, in_use)?;
        let stored = self.store.packs()?.into_iter().collect();
        let (mut newer, mut newer_whole) = (0, 0);
        let (mut images, mut replacing) = (Vec::new(), Vec::new());
        for found in found.iter().rev() {
            let ManifestState::Whole(manifest) = &found.state else { continue };
            if manifest.kind != ManifestKind::Image {
                continue;
            }
            // An incomplete image does not replace another.
            let is_whole = manifest.lost_blocks == 0
                && manifest.packs.iter().all(|pack| is_stored(&stored, pack));
            newer += 1;
            newer_whole += usize::from(is_whole);
            if newer <= newest_count || is_whole && newer_whole <= newest_count {
                replacing.push(found.number);
            } else if manifest.label.is_empty() && !in_use.contains(&manifest.id) {
                images.push(found.number);
            }
        }
        if !images.is_empty() {
            self.confirm(&replacing)?;
        }
        for number in &images {
            self.remove(ObjectName::Image(*number))?;
        }
        Ok(Removed { images, ..self.collect()? })
    }

    /// Confirms that images are durable before others are deleted in favour of them. Those saved
    /// under this claim are.
    fn confirm(&mut self, numbers: &[u32]) -> Result<(), ImageError> {
        for number in numbers {
            if !self.durable.contains(number) {
                self.store.confirm_image(*number)?;
                self.durable.insert(*number);
            }
        }
        Ok(())
    }

    /// Removes unreferenced packs and unfinished manifests of killed writers. Safe to kill at any
    /// moment. Fails if a manifest is unreadable, because its packs would be removed.
    pub fn collect(&mut self) -> Result<Removed, ImageError> {
        self.settle_failed()?;
        let packs = self.store.packs()?;
        for found in self.find()? {
            let is_newest = found.number + 1 >= self.next_number;
            if matches!(found.state, ManifestState::Unfinished) && !is_newest {
                self.remove(ObjectName::Image(found.number))?;
            }
        }
        // Listed again, because the writer of an unfinished manifest may have completed it before
        // the removal.
        let (mut used, mut fences, mut last_daemon_id) = (HashSet::new(), Vec::new(), None);
        for found in self.find()? {
            match found.state {
                ManifestState::Whole(manifest) if manifest.kind == ManifestKind::Fence => {
                    let daemon_id = manifest.writer().daemon_id;
                    // A writer that was suspended since then still finds its next number taken.
                    let is_takeover = last_daemon_id.replace(daemon_id) != Some(daemon_id);
                    if !is_takeover {
                        fences.push(found.number);
                    }
                }
                ManifestState::Whole(manifest) => {
                    used.extend(manifest.packs.iter().map(|pack| pack.name));
                }
                ManifestState::Unfinished => {}
                ManifestState::Unreadable(error) => {
                    let attempt =
                        format!("delete unused packs while image {} exists", found.number);
                    return Err(ImageError::new(error.kind, attempt).with_source(error));
                }
            }
        }
        for number in fences.iter().rev().skip(FENCES_KEPT) {
            self.remove(ObjectName::Image(*number))?;
        }
        let mut removed = Removed::default();
        for (name, length_bytes) in packs {
            if !used.contains(&name) {
                self.remove(ObjectName::Pack(name))?;
                removed.pack_count += 1;
                removed.pack_bytes += length_bytes;
            }
        }
        Ok(removed)
    }

    /// Removes journal extracts that are covered by the newest image, saved under this claim: those
    /// of other writers, and its own of segments not in `kept`. Segments with higher numbers were
    /// begun after `kept` was determined, and stay. The claim is checked once they are listed: a
    /// later one has extracts of other names.
    pub fn remove_extracts(&mut self, kept: &[u32]) -> Result<RemovedExtracts, ImageError> {
        let newest = kept.iter().max();
        let is_covered = |segment: u32| !kept.contains(&segment) && newest > Some(&segment);
        let listed = self.store.extracts()?.into_iter().map(|(name, _)| name);
        let (covered, left): (Vec<_>, Vec<_>) =
            listed.partition(|name| name.writer != self.writer.id || is_covered(name.segment));
        if !covered.is_empty() {
            self.check_claim(|| "remove the shipped journal".to_owned())?;
            self.store.remove_extracts(&covered)?;
        }
        Ok(RemovedExtracts { removed: covered.len() as u64, kept: left.len() as u64 })
    }

    /// Reads the store's state.
    fn prepare(
        store: Arc<dyn ImageStore>,
        writer: StoreWriter,
        found: &[Found],
    ) -> Result<Self, ImageError> {
        let newest = found.iter().rev().find_map(whole);
        if let Some(error) = found.iter().filter_map(unreadable).find(|error| {
            // If no manifest is readable, the store itself fails and its numbers are unknown.
            let is_of_store = newest.is_none() && error.kind != ImageErrorKind::Damaged;
            matches!(error.kind, ImageErrorKind::Newer | ImageErrorKind::Key) || is_of_store
        }) {
            let attempt = "claim a store with a manifest that cannot be read";
            let source = error.attempt.clone();
            return Err(ImageError::new(error.kind, attempt).with_source(source));
        }
        // A manifest older than the newest readable one cannot have assigned later numbers.
        let newest_number = newest.map_or(0, |manifest| manifest.id.number());
        let is_newer = |found: &&Found| found.number > newest_number && unreadable(found).is_some();
        let unsure_count = found.iter().filter(is_newer).count() as u64;
        let known = newest.map_or(1, |manifest| manifest.next_chunk);
        let left_out = CHUNK_NUMBERS_LEFT_OUT.saturating_mul(unsure_count);
        // Any nonzero salt is valid. The writer's id is random.
        let fresh_salt = u32::try_from(writer.id & 0xFFFF_FFFF).expect("32 bits were kept") | 1;
        let top_number = found.last().map_or(0, |found| found.number);
        Ok(Self {
            salt: newest.map_or(fresh_salt, |manifest| manifest.id.salt()),
            next_number: top_number + 1,
            own_number: OwnNumber::new(top_number),
            next_chunk: known.saturating_add(left_out).min(ChunkNumber::END),
            next_pack: PackName { writer: writer.id, index: 0 },
            head: newest_image(found).map(|manifest| manifest.id),
            has_failed: false,
            durable: HashSet::new(),
            writer,
            store,
        })
    }

    /// Takes the next number with a fence.
    fn put_fence(&mut self) -> Result<(), ImageError> {
        let id = ImageId::new(self.salt, self.next_number);
        let fence = Manifest::fence(id, self.next_chunk, &self.writer);
        self.store.create_image(self.next_number, &fence.encode())?;
        self.note_taken();
        Ok(())
    }

    /// Notes that the next number is taken by this writer.
    fn note_taken(&mut self) {
        self.own_number.set(self.next_number);
        self.next_number += 1;
    }

    /// Returns whether no manifest has a higher number than the last one of this writer.
    fn is_newest(&self) -> Result<bool, ImageError> {
        Ok(self.store.images()?.iter().all(|&(number, _)| number < self.next_number))
    }

    fn find(&self) -> Result<Vec<Found>, ImageError> {
        find(&*self.store)
    }

    /// Checks with the last fence that the store guarantees exclusive creation.
    fn check_exclusive(&self) -> Result<(), ImageError> {
        let number = self.next_number - 1;
        let id = ImageId::new(self.salt, number);
        let fence = Manifest::fence(id, self.next_chunk, &self.writer);
        self.store.check_exclusive(number, &fence.encode())
    }

    /// Removes an object, if the claim still holds.
    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.check_claim(|| format!("remove {object}"))?;
        self.store.remove(object)
    }

    fn check_claim(&self, attempt: impl FnOnce() -> String) -> Result<(), ImageError> {
        let newest = self.store.images()?.last().map_or(0, |&(number, _)| number);
        match newest >= self.next_number {
            true => Err(self.fenced(attempt())),
            false => Ok(()),
        }
    }

    /// Error for a number taken by another writer. Names the writer's host if known.
    fn fenced(&self, attempt: String) -> ImageError {
        let number = self.next_number;
        let found = self.find().unwrap_or_default();
        let taken = found.into_iter().find(|found| found.number == number);
        let who = match taken.map(|taken| taken.state) {
            Some(ManifestState::Whole(taken)) => match taken.label.as_str() {
                "" => format!("it took number {number}"),
                host => format!("it took number {number} on the host {host}"),
            },
            _ => format!("numbers from {number} on are taken"),
        };
        ImageError::new(ImageErrorKind::Fenced, attempt).with_source(who)
    }

    /// Removes packs of a failed save. Those that cannot be removed are collected later.
    fn remove_packs(&self, packs: &[PackName]) {
        for name in packs {
            let _ = self.store.remove(ObjectName::Pack(*name));
        }
    }
}

/// Fails if an image in use is missing, because it may reappear and need its packs.
fn check_in_use(found: &[Found], in_use: &[ImageId]) -> Result<(), ImageError> {
    let is_there = |id: &ImageId| found.iter().any(|found| found.number == id.number());
    match in_use.iter().find(|id| !is_there(id)) {
        Some(id) => {
            let attempt =
                format!("remove images and packs while {id}, which is in use, is missing");
            Err(ImageError::new(ImageErrorKind::NotFound, attempt))
        }
        None => Ok(()),
    }
}

fn publish(store: &dyn ImageStore, prepared: Prepared) -> Result<(Manifest, Saved), ImageError> {
    let bytes = prepared.manifest.encode();
    let number = prepared.manifest.id.number();
    match store.create_image(number, &bytes) {
        Err(error) => Err(error),
        Ok(()) => Ok((prepared.manifest.clone(), prepared.saved(bytes.len()))),
    }
}
