//! Pages of the console in a browser: each test is one scenario of `browser/`.
//!
//! Takes a minute and a half, because axe checks each view four times.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use console_clients::{Fixture, has_browser};

/// Serializes browsers, because several concurrent ones are slower than one after the other.
static ONE_BROWSER: Mutex<()> = Mutex::new(());

fn check(scenario: &str) -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let _one = ONE_BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    fixture.run(scenario)
}

#[test]
fn volumes_and_snapshots_are_made_changed_and_deleted() -> Result<()> {
    check("volumes")
}

#[test]
fn several_volumes_are_kept_and_deleted_by_one_confirmation() -> Result<()> {
    check("several")
}

#[test]
fn volumes_are_attached_and_exported() -> Result<()> {
    check("host_volumes")
}

#[test]
fn images_are_saved_verified_restored_and_deleted() -> Result<()> {
    check("images")
}

#[test]
fn users_projects_tokens_and_settings_are_administered() -> Result<()> {
    check("administration")
}

#[test]
fn who_is_limited_to_a_project_sees_that_and_is_refused_nothing_that_is_shown() -> Result<()> {
    check("projects")
}

#[test]
fn a_new_password_ends_other_sessions_and_tokens_are_told() -> Result<()> {
    check("sessions")
}

#[test]
fn a_second_factor_is_enrolled_used_and_reset() -> Result<()> {
    check("second_factor")
}

#[test]
fn who_has_no_second_factor_sees_the_way_to_it_alone_where_it_is_required() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    let _one = ONE_BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    // The shared administrator has none.
    Fixture::with_administrator()?.run("required")
}

#[test]
fn what_the_policy_forbids_does_not_happen() -> Result<()> {
    check("policy")
}

#[test]
fn charts_move_under_requests() -> Result<()> {
    check("activity")
}

#[test]
fn two_thousand_volumes_topics_and_groups_are_filtered_and_sorted() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    let _one = ONE_BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    // Without a broker the page asks for no topics.
    Fixture::with_broker()?.run("many")
}

#[test]
fn shown_command_lines_do_the_same() -> Result<()> {
    check("commands")
}

#[test]
fn axe_finds_nothing_light_and_dark_wide_and_narrow() -> Result<()> {
    check("axe")
}

#[test]
fn everything_is_done_by_keyboard() -> Result<()> {
    check("keyboard")
}

#[test]
fn a_page_comes_with_little_script() -> Result<()> {
    check("weight")
}
