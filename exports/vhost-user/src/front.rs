//! State of a virtual machine as its front end has configured it: memory, rings, features.
//!
//! Everything here runs on the connection's control thread. While a running ring is changed, its
//! worker is paused.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use block_device::BlockDevice;
use export_kit::{Counters, LogLimit};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use crate::disk::{self, RING_SIZE_MAX};
use crate::event::Event;
use crate::inflight::{InFlight, Shape};
use crate::memory::{MemoryMap, REGION_COUNT_MAX, Window};
use crate::ring::{Ring, RingPlace, RingPlan};
use crate::ring_set::RingSet;

/// Time limit for requests in flight when a machine stops its disk. Requests that take longer are
/// failed.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// Rate limit of log messages, shared by all front ends.
static REFUSALS_LOGGED: LogLimit = LogLimit::new();

/// Configuration of a queue that is not running.
#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    size: Option<u16>,
    place: Option<RingPlace>,
    base: u16,
}

pub(crate) struct Front {
    device: Arc<dyn BlockDevice>,
    ring_sets: Vec<Arc<RingSet>>,
    settings: Vec<Setting>,
    map: MemoryMap,
    in_flight: Option<InFlight>,
    features: u64,
    protocol: VhostUserProtocolFeatures,
    /// Device status, as set by the driver.
    status: u64,
    counters: Arc<Counters>,
    log: Arc<LogLimit>,
    /// Call eventfds of the rings.
    calls: Vec<Option<Arc<Event>>>,
}

impl Front {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        ring_sets: Vec<Arc<RingSet>>,
        queue_count: u16,
        counters: Arc<Counters>,
        log: Arc<LogLimit>,
    ) -> Self {
        let queue_count = usize::from(queue_count);
        Self {
            device,
            ring_sets,
            settings: vec![Setting::default(); queue_count],
            map: MemoryMap::default(),
            in_flight: None,
            features: 0,
            protocol: VhostUserProtocolFeatures::empty(),
            status: 0,
            counters,
            log,
            calls: vec![None; queue_count],
        }
    }

    pub(crate) fn has_agreed_to(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol.contains(feature)
    }

    pub(crate) fn status(&self) -> u64 {
        self.status
    }

    pub(crate) fn set_status(&mut self, status: u64) {
        if status == 0 {
            self.end_rings();
        }
        self.status = status;
    }

    fn queue_count(&self) -> u16 {
        u16::try_from(self.settings.len()).expect("it was made of such a number")
    }

    /// Returns the index of a queue, or an error if the disk does not have it.
    fn queue(&self, index: u32) -> Result<usize> {
        let index = usize::try_from(index).map_err(|_| Error::InvalidParam)?;
        if index < self.settings.len() {
            Ok(index)
        } else {
            refuse("the disk has no queue of this number")
        }
    }

    fn rings_of(&self, queue: usize) -> (&Arc<RingSet>, usize) {
        (&self.ring_sets[queue % self.ring_sets.len()], queue / self.ring_sets.len())
    }

    /// Starts a queue as soon as it is fully configured.
    fn begin_when_complete(&mut self, queue: usize) -> Result<()> {
        let Setting { size: Some(size), place: Some(place), base } = self.settings[queue] else {
            return Ok(());
        };
        let (set, slot) = self.rings_of(queue);
        let is_wanted = set.visit(|rings| {
            let slot = &rings.slots[slot];
            slot.ring.is_none() && slot.kick.is_some()
        });
        if !is_wanted {
            return Ok(());
        }
        let in_flight = match &self.in_flight {
            Some(all) => {
                let found = all.queue(queue, size);
                if found.is_none() {
                    return refuse("the in-flight buffer has no space for the queue");
                }
                found
            }
            None => None,
        };
        let has_event_index = disk::has(self.features, VIRTIO_RING_F_EVENT_IDX);
        let log = Arc::clone(&self.log);
        let plan = RingPlan { size, place, base, has_event_index, in_flight, log };
        let mut ring = Ring::begin(&self.map, plan).or_else(refuse)?;
        ring.set_call(self.calls[queue].clone());
        if ring.again_count() > 0 {
            let count = ring.again_count();
            if let Some(left_out) = self.log.admit() {
                let message = "repeating requests of the previous daemon";
                tracing::info!(queue, count, left_out, message);
            }
            self.counters.repeated.add(count as u64);
        }
        set.visit(|rings| rings.slots[slot].ring = Some(ring));
        Ok(())
    }

    /// Stops a queue after its requests in flight. Returns the available-ring index to resume at.
    fn end_ring(&mut self, queue: usize) -> u16 {
        let (set, slot) = self.rings_of(queue);
        let base = match set.end_ring(slot, END_PATIENCE) {
            Some(ring) => ring.base(),
            None => self.settings[queue].base,
        };
        self.settings[queue].base = base;
        base
    }

    fn end_rings(&mut self) {
        for queue in 0..self.settings.len() {
            self.end_ring(queue);
            self.settings[queue] = Setting::default();
            self.calls[queue] = None;
        }
        let has_protocol = has_protocol_features(self.features);
        for set in &self.ring_sets {
            set.visit(|rings| {
                rings.slots.iter_mut().for_each(|slot| slot.is_enabled = !has_protocol);
            });
        }
    }

    /// Switches the running rings to a changed memory map.
    fn change_map(&mut self, map: MemoryMap) {
        for set in &self.ring_sets {
            set.visit(|rings| {
                let running = rings.slots.iter_mut().filter_map(|slot| slot.ring.as_mut());
                running.for_each(|ring| ring.move_to(&map));
            });
        }
        self.map = map;
    }
}

/// Returns whether `SET_VRING_ENABLE` enables rings. Otherwise rings are enabled from the start.
fn has_protocol_features(features: u64) -> bool {
    features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
}

/// Logs the reason and ends the connection.
fn refuse<T>(reason: impl std::fmt::Display) -> Result<T> {
    if let Some(left_out) = REFUSALS_LOGGED.admit() {
        tracing::warn!(%reason, left_out, "vhost-user message rejected");
    }
    Err(Error::InvalidParam)
}

/// Rejects one message. The connection continues.
fn decline<T>() -> Result<T> {
    Err(Error::ReqHandlerError(std::io::ErrorKind::Unsupported.into()))
}

fn window_of(region: &VhostUserSingleMemoryRegion) -> Window {
    Window {
        guest_start: region.guest_phys_addr,
        bytes: region.memory_size,
        front_start: region.user_addr,
        file_offset: region.mmap_offset,
    }
}

impl VhostUserBackendReqHandlerMut for Front {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.end_rings();
        self.status = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(disk::features(self.device.as_ref()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !disk::features(self.device.as_ref());
        if unknown != 0 {
            return refuse(format!("features {unknown:#x} were not offered"));
        }
        self.features = features;
        let is_write_through = !disk::has(features, VIRTIO_BLK_F_FLUSH);
        let has_protocol = has_protocol_features(features);
        for set in &self.ring_sets {
            set.visit(|rings| {
                rings.is_write_through = is_write_through;
                // Without protocol features there is no message that enables rings.
                rings.slots.iter_mut().for_each(|slot| slot.is_enabled |= !has_protocol);
            });
        }
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::STATUS)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_protocol_features()?;
        match VhostUserProtocolFeatures::from_bits(features).filter(|it| offered.contains(*it)) {
            Some(features) => self.protocol = features,
            None => return refuse(format!("protocol features {features:#x} were not all offered")),
        }
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.settings.len() as u64)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<vhost::VhostUserMemoryRegionBase>>> {
        let mut map = MemoryMap::default();
        for (region, file) in regions.iter().zip(files) {
            map = map.with(Window::from(region), file).or_else(refuse)?;
        }
        self.change_map(map);
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGION_COUNT_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<vhost::VhostUserMemoryRegionBase>> {
        let map = self.map.with(window_of(region), file).or_else(refuse)?;
        self.change_map(map);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let map = self.map.without(window_of(region)).or_else(refuse)?;
        self.change_map(map);
        Ok(())
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let queue = self.queue(index)?;
        match u16::try_from(size) {
            Ok(size) if size.is_power_of_two() && size <= RING_SIZE_MAX => {
                self.settings[queue].size = Some(size);
                Ok(())
            }
            _ => refuse(crate::ring::RingError::BadSize { size }),
        }
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let queue = self.queue(index)?;
        let place = RingPlace { descriptors, available, used };
        let (set, slot) = self.rings_of(queue);
        let running = set.visit(|rings| rings.slots[slot].ring.as_ref().map(Ring::place));
        if running.is_some_and(|running| running != place) {
            return refuse("a ring cannot be moved while it is active");
        }
        self.settings[queue].place = Some(place);
        self.begin_when_complete(queue)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let queue = self.queue(index)?;
        match u16::try_from(base) {
            Ok(base) => self.settings[queue].base = base,
            Err(_) => return refuse("invalid start index for a split ring"),
        }
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let queue = self.queue(index)?;
        let base = self.end_ring(queue);
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let queue = self.queue(index.into())?;
        let Some(file) = file else {
            return refuse("a queue without a kick descriptor (polling) is not supported");
        };
        let kick = Event::to_wait_for(file).or_else(refuse)?;
        let (set, slot) = self.rings_of(queue);
        set.visit(|rings| rings.slots[slot].kick = Some(kick));
        self.begin_when_complete(queue)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let queue = self.queue(index.into())?;
        let call = file.map(Event::to_signal).transpose().or_else(refuse)?.map(Arc::new);
        self.calls[queue].clone_from(&call);
        let (set, slot) = self.rings_of(queue);
        set.watch_call(slot, call.clone());
        set.visit(|rings| {
            if let Some(ring) = &mut rings.slots[slot].ring {
                ring.set_call(call);
            }
        });
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.queue(index.into()).map(|_| ())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let queue = self.queue(index)?;
        let (set, slot) = self.rings_of(queue);
        set.visit(|rings| rings.slots[slot].is_enabled = enable);
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let (offset, size) = (offset as usize, size as usize);
        let geometry = self.device.geometry();
        disk::configuration(geometry, self.queue_count(), offset, size).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // No writable configuration field is offered.
        decline()
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let shape = self.shape(inflight)?;
        let file = shape.make_memory().or_else(refuse)?;
        let copy = file.try_clone().or_else(refuse)?;
        self.in_flight = Some(InFlight::map(copy, 0, shape.bytes(), shape).or_else(refuse)?);
        let answer = VhostUserInflight {
            mmap_size: shape.bytes(),
            mmap_offset: 0,
            num_queues: inflight.num_queues,
            queue_size: inflight.queue_size,
        };
        Ok((answer, file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let shape = self.shape(inflight)?;
        let (offset, bytes) = (inflight.mmap_offset, inflight.mmap_size);
        self.in_flight = Some(InFlight::map(file, offset, bytes, shape).or_else(refuse)?);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        decline()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        decline()
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        decline()
    }

    fn check_device_state(&mut self) -> Result<()> {
        decline()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        decline()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        decline()
    }
}

impl Front {
    fn shape(&self, inflight: &VhostUserInflight) -> Result<Shape> {
        let (queue_count, ring_size) = (inflight.num_queues, inflight.queue_size);
        Shape::new(queue_count, ring_size, self.queue_count()).or_else(refuse)
    }
}
