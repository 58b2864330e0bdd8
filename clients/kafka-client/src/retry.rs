//! Retries with exponential backoff.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::ClientError;
use crate::settings::WaitNotice;

const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Backoff between attempts, until a deadline.
#[derive(Debug)]
pub(crate) struct Retry {
    begun: Instant,
    deadline: Instant,
    pause: Duration,
    /// Present until it was used.
    notice: Option<WaitNotice>,
}

impl Retry {
    pub(crate) fn within(time_max: Duration, notice: Option<WaitNotice>) -> Self {
        let begun = Instant::now();
        Self { begun, deadline: begun + time_max, pause: PAUSE_FIRST, notice }
    }

    /// Pauses before the next attempt. Returns `error` if it is not retriable or the time is up.
    pub(crate) async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.is_retriable() || Instant::now() + self.pause >= self.deadline {
            return Err(error);
        }
        if let Some(notice) = self.notice.take_if(|it| self.begun.elapsed() >= it.after) {
            (notice.tell)(&error);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test]
    async fn only_what_may_change_is_tried_again() {
        let error = |kind| ClientError::new(kind, "no");
        let mut retry = Retry::within(Duration::from_secs(3600), None);
        retry.after(error(ErrorKind::Unreachable)).await.expect("another attempt");
        retry.after(error(ErrorKind::Invalid)).await.expect_err("it stays invalid");
        let mut over = Retry::within(Duration::ZERO, None);
        over.after(error(ErrorKind::Unreachable)).await.expect_err("no time is left");
    }
}
