//! Escaping of untrusted text, such as names of groups and clients, for terminals.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a character changes the text direction or is invisible, so that the displayed
/// text could be misleading.
fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

fn is_plain(letter: char) -> bool {
    !letter.is_control() && !is_unseen(letter)
}

/// Escapes a text for one line.
pub(crate) fn in_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// Escapes a text that may have several lines and columns.
pub(crate) fn in_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| is_plain(letter) || matches!(letter, '\n' | '\t'))
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_kept) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(2 * text.len());
    for letter in text.chars() {
        match is_kept(letter) {
            true => shown.push(letter),
            false => shown.extend(letter.escape_default()),
        }
    }
    Cow::Owned(shown)
}

/// Escapes JSON, in which only strings can contain control characters.
pub(crate) fn in_json(json: &str) -> Cow<'_, str> {
    // White space between values. In strings it is already escaped.
    let is_kept = |letter| is_plain(letter) || matches!(letter, '\n' | '\r' | '\t');
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(2 * json.len());
    for letter in json.chars() {
        match is_kept(letter) {
            true => shown.push(letter),
            // All escaped characters are in the basic multilingual plane.
            false => write!(shown, "\\u{:04x}", u32::from(letter)).expect("it is memory"),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_something_to_a_terminal_is_shown_by_its_number() {
        assert_eq!(in_line("a\n\x1b[2J\u{9b}ß\u{202e}"), "a\\n\\u{1b}[2J\\u{9b}ß\\u{202e}");
        assert_eq!(in_lines("a\tb\nc\r\x07"), "a\tb\nc\\r\\u{7}");
        assert_eq!(in_line("Größe 日本 👩"), "Größe 日本 👩");
        let name = "g\u{9b}2J\x1b\u{2069}\x7f";
        let json = serde_json::json!({"name": name}).to_string();
        let shown = in_json(&json);
        assert!(shown.is_ascii() && !shown.contains(char::is_control), "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).expect("it is JSON");
        assert_eq!(read["name"], name);
    }
}
