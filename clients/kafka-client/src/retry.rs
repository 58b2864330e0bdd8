//! Retries of an operation with exponential backoff, within its time limit.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{ClientError, ErrorKind};
use crate::settings::{Settings, WaitNotice};

const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Time after the deadline at which a further attempt is cancelled. Its last request may time out
/// before, and names itself.
const OVERTIME: Duration = Duration::from_millis(100);

/// Backoff between the attempts of one operation, until a deadline.
#[derive(Debug)]
pub(crate) struct Retry {
    begun: Instant,
    time_max: Duration,
    /// Time limit of a connection, for which the first attempt may take longer.
    connect_time_max: Duration,
    pause: Duration,
    /// Error of the previous attempt.
    failed: Option<ClientError>,
    /// Present until it was used.
    notice: Option<WaitNotice>,
}

impl Retry {
    /// Begins an operation.
    pub(crate) fn within(settings: &Settings) -> Self {
        Self {
            begun: Instant::now(),
            time_max: settings.request_time_max,
            connect_time_max: settings.connect_time_max,
            pause: PAUSE_FIRST,
            failed: None,
            notice: settings.wait_notice,
        }
    }

    /// Makes an attempt, which ends soon after the deadline.
    pub(crate) async fn attempt<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let overtime = if self.failed.is_none() { self.connect_time_max } else { OVERTIME };
        let done = timeout_at(self.deadline() + overtime, work).await;
        done.unwrap_or_else(|_| Err(self.late()))
    }

    /// Pauses before the next attempt. Returns `error` if it is not retriable or the time is up.
    pub(crate) async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        match error.is_retriable() {
            true => self.wait(error, Duration::ZERO).await,
            false => Err(error),
        }
    }

    /// Pauses before the next attempt of an operation that waits for others and may take `more`
    /// than its own time. Returns `error`, whatever it is, if the time is up.
    pub(crate) async fn wait(
        &mut self,
        error: ClientError,
        more: Duration,
    ) -> Result<(), ClientError> {
        if Instant::now() + self.pause >= self.deadline() + more {
            return Err(error);
        }
        if let Some(notice) = self.notice.take_if(|it| self.begun.elapsed() >= it.after) {
            (notice.tell)(&error);
        }
        self.failed = Some(error);
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    fn deadline(&self) -> Instant {
        self.begun + self.time_max
    }

    fn late(&self) -> ClientError {
        let error = |context: String| ClientError::new(ErrorKind::TimedOut, context);
        let Some(failed) = &self.failed else {
            return error(format!("timed out after {:?}", self.time_max + self.connect_time_max));
        };
        let context = format!("timed out after {:?}; the attempt before failed", self.time_max);
        error(context).because(failed.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(request_time_max: Duration) -> Settings {
        let connect_time_max = Duration::from_millis(1);
        Settings { request_time_max, connect_time_max, ..Settings::default() }
    }

    #[tokio::test]
    async fn only_what_may_change_is_tried_again() {
        let error = |kind| ClientError::new(kind, "no");
        let mut retry = Retry::within(&settings(Duration::from_secs(3600)));
        retry.after(error(ErrorKind::Unreachable)).await.expect("another attempt");
        retry.after(error(ErrorKind::Invalid)).await.expect_err("it stays invalid");
        let mut over = Retry::within(&settings(Duration::ZERO));
        over.after(error(ErrorKind::Unreachable)).await.expect_err("no time is left");
    }

    #[tokio::test]
    async fn an_attempt_ends_with_the_time_of_its_operation() {
        let retry = Retry::within(&settings(Duration::ZERO));
        let late = retry.attempt(std::future::pending::<Result<(), _>>()).await;
        assert_eq!(late.expect_err("it never ends").to_string(), "timed out after 1ms");
        retry.attempt(async { Ok(()) }).await.expect("it is done");
    }
}
