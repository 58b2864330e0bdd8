//! Thread that ships the journal to the image store, for a standby.
//!
//! Only this thread waits for the store. Flushes and saves do not depend on it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::ShippingStatus;
use durable_set::{DurableError, Shipped, Shipper};
use image::{ImageError, ImageErrorKind};

use crate::durable::state::{Durable, Shipping, causes};
use crate::ticker::Ticker;

/// Maximum delay before a failed store is retried. The delay starts at the interval and doubles.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Starts the shipping thread, if shipping is configured.
pub(super) fn ship(durable: &Arc<Durable>) -> io::Result<Option<Ticker>> {
    let Some(every) = durable.images_config.ship_every else { return Ok(None) };
    let shipper = Shipper::new(Arc::clone(&durable.set));
    let mut shipped = ShippingLoop { durable: Arc::clone(durable), shipper, every, wait: every };
    Ticker::start("shipping", every, move || shipped.turn()).map(Some)
}

struct ShippingLoop {
    durable: Arc<Durable>,
    shipper: Shipper,
    every: Duration,
    wait: Duration,
}

impl ShippingLoop {
    /// Ships new journal records. Returns the delay until the next turn.
    fn turn(&mut self) -> Duration {
        if !self.durable.set.has_journaled_volumes() {
            return self.every;
        }
        let shipped = self.shipper.ship(unix_micros());
        let failure = match &shipped {
            Ok(Shipped::NeedsImage) => {
                // The keeper saves an image.
                self.durable.known().is_wanted = true;
                None
            }
            Ok(_) => None,
            Err(error) => Some(causes(error)),
        };
        self.note(failure);
        match shipped {
            Ok(Shipped::Some { .. }) => Duration::ZERO,
            Ok(_) => {
                self.wait = self.every;
                self.every
            }
            // A fenced writer stays fenced.
            Err(error) if is_fenced(&error) => WAIT_MAX.max(self.every),
            Err(_) => {
                let wait = self.wait;
                self.wait = (wait * 2).min(WAIT_MAX).max(self.every);
                wait
            }
        }
    }

    /// Records the outcome of a turn, and reports when the store begins and stops failing.
    fn note(&self, failure: Option<String>) {
        let events = &self.durable.events;
        let lag = Some(self.shipper.lag());
        let known = Shipping { lag, failure: failure.clone() };
        let before = std::mem::replace(&mut *self.durable.shipping(), known).failure;
        match (before, failure) {
            (None, Some(cause)) => {
                let message = format!(
                    "cannot ship the journal to the image store: {cause}; a standby lacks what is \
                     flushed from now on"
                );
                events.error("shipping_failing", None, message);
            }
            (Some(_), None) => {
                let message = "the journal is shipped to the image store again".to_owned();
                events.info("shipping_resumed", None, message);
            }
            _ => {}
        }
    }
}

impl Durable {
    pub(super) fn shipping_status(&self) -> Option<ShippingStatus> {
        self.images_config.ship_every?;
        let Shipping { lag, failure } = self.shipping().clone();
        let seconds = |micros| unix_micros().saturating_sub(micros) as f64 / 1e6;
        Some(ShippingStatus {
            lag_seconds: lag.and_then(|lag| lag.shipped_unix_micros).map(seconds),
            lag_bytes: lag.map_or(0, |lag| lag.bytes),
            failure,
        })
    }

    pub(super) fn shipping(&self) -> std::sync::MutexGuard<'_, Shipping> {
        self.shipping.lock().expect("no thread panics with this lock")
    }
}

fn is_fenced(error: &DurableError) -> bool {
    let source = error.source.as_deref().and_then(|source| source.downcast_ref::<ImageError>());
    source.is_some_and(|error| error.kind == ImageErrorKind::Fenced)
}

fn unix_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
