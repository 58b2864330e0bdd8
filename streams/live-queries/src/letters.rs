//! Case conversion as in PostgreSQL: character by character, without context.

/// Returns the upper case of a letter. A letter whose upper case has several characters is
/// unchanged, except letters with iota subscript.
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

/// Returns the lower case of a letter.
pub fn lower(letter: char) -> char {
    // Only the dotted capital I has a lower case of two characters.
    letter.to_lowercase().next().unwrap_or(letter)
}

/// Converts a text to upper case.
pub fn uppercase(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_uppercase(),
        false => text.chars().map(upper).collect(),
    }
}

/// Converts a text to lower case.
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
