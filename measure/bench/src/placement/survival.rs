//! Survival of database parts, by their storage.

use results::placement::Placement;

use crate::targets::{AfterKill, Durability};

/// Describes the fate of acknowledged transactions. `fast` is the storage of the part, `slow` that
/// of the rest.
pub(super) fn survives(placement: Placement, fast: Option<Durability>, slow: Durability) -> String {
    let (kept, note) = match (placement, fast) {
        (Placement::Whole, Some(fast)) => (fast, ""),
        (Placement::Logs, Some(fast)) => (weaker(fast, slow), log_note(fast)),
        (Placement::Temporary, Some(fast)) => (slow, temporary_note(fast)),
        (Placement::None, _) | (_, None) => (slow, ""),
    };
    format!("{kept}{note}")
}

/// Returns the weaker guarantee, because both parts are needed.
fn weaker(one: Durability, other: Durability) -> Durability {
    let order = |it: AfterKill| match it {
        AfterKill::NoServer => 3,
        AfterKill::GoesOn => 2,
        AfterKill::DataStays => 1,
        AfterKill::DataLost => 0,
    };
    let is_one = order(one.after_kill) <= order(other.after_kill);
    Durability {
        after_kill: if is_one { one.after_kill } else { other.after_kill },
        survives_power_loss: one.survives_power_loss && other.survives_power_loss,
    }
}

fn log_note(fast: Durability) -> &'static str {
    match fast.survives_power_loss {
        true => "",
        false => ": data files without their log do not start, restore a backup",
    }
}

fn temporary_note(fast: Durability) -> &'static str {
    match fast.survives_power_loss {
        true => "",
        false => "; the folder of the temporary tablespace is made anew after power loss",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Durability =
        Durability { after_kill: AfterKill::NoServer, survives_power_loss: true };
    const JOURNAL: Durability =
        Durability { after_kill: AfterKill::GoesOn, survives_power_loss: true };
    const ZRAM: Durability =
        Durability { after_kill: AfterKill::NoServer, survives_power_loss: false };

    #[track_caller]
    fn check(placement: Placement, fast: Option<Durability>, expected: &[&str]) {
        let text = survives(placement, fast, DISK);
        for words in expected {
            assert!(text.contains(words), "{words:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_log_in_memory_is_the_end_of_the_database() {
        let lost = ["lost at power loss", "without their log", "backup"];
        check(Placement::Logs, Some(ZRAM), &lost);
        check(Placement::Whole, Some(ZRAM), &["lost at power loss"]);
    }

    #[test]
    fn a_durable_log_keeps_everything() {
        let kept = ["survives kill -9 of its server", "survives power loss"];
        check(Placement::Logs, Some(JOURNAL), &kept);
        check(Placement::Whole, Some(JOURNAL), &kept);
    }

    #[test]
    fn nothing_that_must_survive_is_temporary() {
        check(Placement::Temporary, Some(ZRAM), &["survives power loss", "made anew"]);
        check(Placement::None, None, &["no server to kill; survives power loss"]);
    }
}
