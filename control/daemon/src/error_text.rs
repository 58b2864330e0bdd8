//! Error chains as text for messages, without repetitions.

use std::io;

use anyhow::Error;

/// Formats the whole chain in one line, from the failed operation to its cause. A layer that only
/// repeats the operation of the layer below is omitted.
pub(crate) fn in_one_line(error: &Error) -> String {
    links(error).join(": ")
}

/// Formats the root cause on the first line and the operations that it caused to fail below, for
/// the operator of a daemon that does not start.
pub(crate) fn cause_first(error: &Error) -> String {
    let mut links = links(error);
    let cause = links.pop().unwrap_or_default();
    // An error of the operating system is unclear without the operation that failed.
    let is_of_system = error.root_cause().is::<io::Error>();
    let cause = match links.pop_if(|_| is_of_system) {
        Some(asked) => format!("{asked}: {cause}"),
        None => cause,
    };
    let outer = links.iter().rev().map(|link| format!("\n  so: {link}"));
    [cause].into_iter().chain(outer).collect()
}

/// Adds the failed operation to its cause, unless the cause begins with it.
pub(crate) fn failed(operation: &str, cause: &str) -> String {
    match attempt_of(cause) == operation {
        true => cause.to_owned(),
        false => format!("{operation}: {cause}"),
    }
}

fn links(error: &Error) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    for link in error.chain().map(ToString::to_string) {
        if links.last().is_some_and(|above| attempt_of(above) == attempt_of(&link)) {
            links.pop();
        }
        links.push(link);
    }
    links
}

/// Failed operation: the start of a message, up to a colon.
fn attempt_of(link: &str) -> &str {
    link.split(": ").next().unwrap_or(link)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_two_layers_attempted_is_said_once() {
        let error = anyhow!("cannot delete image 2: it does not exist")
            .context("cannot delete image 2: the store of images failed");
        assert_eq!(in_one_line(&error), "cannot delete image 2: it does not exist");
        let error = anyhow!("no such file").context("cannot read a").context("cannot start");
        assert_eq!(in_one_line(&error), "cannot start: cannot read a: no such file");
    }

    #[test]
    fn an_operation_is_added_once() {
        let text = "cannot save an image: the disk is full";
        assert_eq!(failed("cannot save an image", "the disk is full"), text);
        assert_eq!(failed("cannot save an image", text), text);
    }

    #[test]
    fn the_cause_comes_first() {
        let error = anyhow!("cannot take the key: it is unreadable").context("cannot serve");
        assert_eq!(
            cause_first(&error),
            "cannot take the key: it is unreadable\n  so: cannot serve"
        );
        let error = anyhow!("cannot open the pool /r: another process uses it")
            .context("cannot open the pool /r");
        assert_eq!(cause_first(&error), "cannot open the pool /r: another process uses it");
        assert_eq!(cause_first(&anyhow!("a")), "a");
    }

    #[test]
    fn what_the_system_says_stands_with_what_it_was_asked_for() {
        let system = io::Error::other("no room");
        let error = Error::from(system).context("cannot write /a").context("cannot serve");
        assert_eq!(cause_first(&error), "cannot write /a: no room\n  so: cannot serve");
    }
}
