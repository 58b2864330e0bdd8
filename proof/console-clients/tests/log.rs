//! Topics, groups and live queries in a browser, with a real broker on a real daemon.

use anyhow::Result;
use console_clients::{Fixture, has_browser};

#[test]
fn topics_are_seen_and_queries_follow_what_comes() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_broker()?.run("log")
}

#[test]
fn plans_are_shown_and_results_are_drawn() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_broker()?.run("results")
}

#[test]
fn topics_are_deleted_one_and_several_by_one_confirmation() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_broker()?.run("topics")
}

#[test]
fn offsets_of_groups_are_seen_and_reset() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    Fixture::with_broker()?.run("groups")
}
