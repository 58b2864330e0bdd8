//! Cases of letters as PostgreSQL changes them: one character into one, whatever stands beside it.

/// The capital of a letter. What has no capital of one character stays, but for letters with a
/// small iota beneath.
pub fn upper(letter: char) -> char {
    let mut capitals = letter.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        _ => {
            let beside = match letter {
                '\u{1f80}'..='\u{1faf}' => 8,
                '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
                _ => 0,
            };
            let is_small = beside == 9 || u32::from(letter) & 8 == 0;
            let capital = u32::from(letter) + if is_small { beside } else { 0 };
            char::from_u32(capital).unwrap_or(letter)
        }
    }
}

/// The small letter of a capital.
pub fn lower(letter: char) -> char {
    // A dotted capital I alone has a small letter of two characters.
    letter.to_lowercase().next().unwrap_or(letter)
}

/// A text in capitals.
pub fn uppercase(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_uppercase(),
        false => text.chars().map(upper).collect(),
    }
}

/// A text in small letters.
pub fn lowercase(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => text.chars().map(lower).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_character_becomes_one() {
        assert_eq!(uppercase("straße ŉ ﬁ ǆ ᾳ ᾀ éÀ"), "STRAßE ŉ ﬁ Ǆ ᾼ ᾈ ÉÀ");
        assert_eq!(lowercase("ΑΣ İ ÀÉ"), "ασ i àé");
        assert_eq!((uppercase("aZ1"), lowercase("aZ1")), ("AZ1".to_owned(), "az1".to_owned()));
    }
}
