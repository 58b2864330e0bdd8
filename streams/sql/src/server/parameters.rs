//! Startup parameters of PostgreSQL's clients, both direct ones and those in `options`.

use crate::engine::switch;

/// Returns the settings among the startup parameters, those of `options` first, without the
/// parameters of the login. Names are in lower case.
pub(super) fn named(parameters: &[(String, String)]) -> Vec<(String, String)> {
    let options = parameters.iter().filter(|it| it.0 == "options");
    let mut named: Vec<_> = options.flat_map(|it| of_options(&it.1)).collect();
    for (name, value) in parameters {
        if !matches!(name.as_str(), "user" | "database" | "options" | "replication") {
            named.push((name.to_ascii_lowercase(), value.clone()));
        }
    }
    named
}

/// Returns whether the startup parameters request a replication connection.
pub(super) fn is_replication(parameters: &[(String, String)]) -> bool {
    let value = parameters.iter().rfind(|it| it.0 == "replication").map(|it| it.1.as_str());
    value.is_some_and(|it| switch(it) != Some(false))
}

/// Parses `-c NAME=VALUE`, `-cNAME=VALUE` and `--NAME=VALUE`. Other switches have no meaning for
/// this server and are ignored.
fn of_options(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut words = words(text).into_iter();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_owned()),
            None => word.strip_prefix("--").map(str::to_owned),
        };
        if let Some((name, value)) = setting.as_deref().and_then(|it| it.split_once('=')) {
            found.push((name.to_ascii_lowercase().replace('-', "_"), value.to_owned()));
        }
    }
    found
}

/// Splits at spaces. A backslash escapes the next character.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => word.extend(letters.next()),
            it if it.is_ascii_whitespace() => words.push(std::mem::take(&mut word)),
            it => word.push(it),
        }
    }
    words.push(word);
    words.retain(|it| !it.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_parameters_as_for_postgresql() {
        let given = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = r"-c a=1 -cB=two\ words  --c-d=x=y -d 5 -c odd -c e=\\";
        let parameters = [given("user", "ann"), given("A", "3"), given("options", options)];
        let expected = [("a", "1"), ("b", "two words"), ("c_d", "x=y"), ("e", "\\"), ("a", "3")];
        assert_eq!(named(&parameters), expected.map(|(name, value)| given(name, value)));
        assert_eq!(named(&[given("options", "-c")]), []);
        for (value, expected) in [("database", true), ("true", true), ("off", false)] {
            assert_eq!(is_replication(&[given("replication", value)]), expected, "{value}");
        }
        assert!(!is_replication(&parameters));
    }
}
