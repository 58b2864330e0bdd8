//! Systems that take turns at the same task, so that a slow period of the machine affects all.

use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use system::Interruption;

use super::cores::{Cores, Used};

/// A system, and the function that performs a turn and returns its figure.
pub(super) struct Contestant<'work> {
    pub(super) target: &'static str,
    pub(super) turn: Box<dyn FnMut() -> Result<f64> + 'work>,
}

impl<'work> Contestant<'work> {
    pub(super) fn new(target: &'static str, turn: impl FnMut() -> Result<f64> + 'work) -> Self {
        Self { target, turn: Box::new(turn) }
    }
}

/// Results of the turns of one system.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) target: &'static str,
    /// Figures in order.
    pub(super) figures: Vec<f64>,
    pub(super) used: Used,
    pub(super) started_unix_ms: u64,
}

impl Tally {
    /// Returns the median of the turns.
    pub(super) fn median(&self) -> f64 {
        results::median(&self.figures).unwrap_or(f64::NAN)
    }
}

/// Runs the turns. Each system has equally many, and starts a round equally often.
pub(super) fn take_turns(
    cores: &Cores,
    turns: usize,
    mut contestants: Vec<Contestant<'_>>,
) -> Result<Vec<Tally>> {
    let count = contestants.len();
    let tally = |contestant: &Contestant<'_>| Tally {
        target: contestant.target,
        figures: Vec::new(),
        used: Used::default(),
        started_unix_ms: 0,
    };
    let mut tallies: Vec<Tally> = contestants.iter().map(tally).collect();
    for round in 0..turns {
        for place in 0..count {
            let index = (round + place) % count;
            let (contestant, tally) = (&mut contestants[index], &mut tallies[index]);
            ensure!(!Interruption::is_asked_for(), "interrupted between two turns");
            if tally.figures.is_empty() {
                tally.started_unix_ms = crate::run::unix_ms(SystemTime::now());
            }
            let watch = cores.watch()?;
            let figure = (contestant.turn)();
            let target = contestant.target;
            let figure = figure.with_context(|| format!("a turn of {target} failed"))?;
            tally.used += watch.used()?;
            tally.figures.push(figure);
        }
    }
    Ok(tallies)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_have_as_many_turns_and_begin_in_turn() {
        let order = RefCell::new(Vec::new());
        let contestant = |target: &'static str, figure: f64| {
            let order = &order;
            Contestant::new(target, move || {
                order.borrow_mut().push(target);
                Ok(figure + order.borrow().len() as f64)
            })
        };
        let cores = Cores::of_this_process().expect("there is a core");
        let contestants = vec![contestant("a", 0.0), contestant("b", 100.0)];
        let tallies = take_turns(&cores, 2, contestants).expect("no turn fails");
        assert_eq!(*order.borrow(), ["a", "b", "b", "a"]);
        assert_eq!(tallies[0].figures, [1.0, 4.0]);
        assert_eq!(tallies[1].median(), 102.5);
    }

    #[test]
    fn a_turn_that_fails_says_whose_it_is() {
        let cores = Cores::of_this_process().expect("there is a core");
        let failing = Contestant::new("a", || anyhow::bail!("on fire"));
        let error = take_turns(&cores, 1, vec![failing]).expect_err("it fails");
        assert!(format!("{error:#}").contains("a turn of a failed: on fire"), "{error:#}");
    }
}
