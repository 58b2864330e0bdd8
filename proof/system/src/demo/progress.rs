//! Progress line: time since the start, step, and number of steps.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(500);

/// Shows one line that is updated on a terminal, or one line for each step elsewhere.
pub(crate) struct Progress {
    steps: Option<Sender<String>>,
    shower: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn new(step_count: usize) -> Self {
        let (steps, incoming) = mpsc::channel();
        let shower = thread::spawn(move || {
            let start = Instant::now();
            let is_terminal = std::io::stderr().is_terminal();
            let mut number = 0;
            let mut what = String::from("start");
            loop {
                let is_new = match incoming.recv_timeout(TICK) {
                    Ok(step) => {
                        number += 1;
                        what = step;
                        true
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                let line = line(start.elapsed(), number, step_count, &what);
                if is_terminal {
                    eprint!("\r\x1b[K{line}");
                } else if is_new {
                    eprintln!("{line}");
                }
                // A closed terminal shows nothing, which is no reason to stop.
                let _ = std::io::stderr().flush();
            }
            if is_terminal {
                eprint!("\r\x1b[K");
            }
        });
        Self { steps: Some(steps), shower: Some(shower) }
    }

    /// Announces the next step.
    pub(crate) fn step(&self, what: &str) {
        if let Some(steps) = &self.steps {
            // The display thread lives as long as the sender.
            let _ = steps.send(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(shower) = self.shower.take() {
            // It only displays. A panic in it has been shown.
            let _ = shower.join();
        }
    }
}

fn line(elapsed: Duration, number: usize, step_count: usize, what: &str) -> String {
    let seconds = elapsed.as_secs();
    format!("[{}:{:02}] {number}/{step_count} {what}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_time_step_and_number_of_steps() {
        assert_eq!(line(Duration::from_secs(65), 2, 9, "load"), "[1:05] 2/9 load");
    }
}
