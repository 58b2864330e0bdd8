//! Character functions: case, code points, and text encodings of bytes.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;
use live_queries::letters::{lower, lowercase, upper, uppercase};

use super::own::{Own, changed, numbers, of_arrow, texts};
use crate::error::{SqlError, SqlState};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Own::udf("upper", 1, text, |it| changed(&it[0], |it| Ok(Some(uppercase(it))))),
        Own::udf("lower", 1, text, |it| changed(&it[0], |it| Ok(Some(lowercase(it))))),
        Own::udf("initcap", 1, text, |it| changed(&it[0], |it| Ok(Some(initcap(it))))),
        Own::udf("chr", 1, number, |it| chr(&it[0])),
        Own::udf("to_hex", 1, number, to_hex),
        Own::udf("encode", 2, encoded, encode),
    ]
}

fn text(types: &[DataType]) -> Option<DataType> {
    (types[0].is_string() || types[0].is_null()).then_some(DataType::Utf8View)
}

fn number(types: &[DataType]) -> Option<DataType> {
    (types[0].is_integer() || types[0].is_null()).then_some(DataType::Utf8View)
}

fn initcap(text: &str) -> String {
    let mut is_inside = false;
    let cased = text.chars().map(|letter| {
        let cased = if is_inside { lower(letter) } else { upper(letter) };
        is_inside = letter.is_alphanumeric();
        cased
    });
    cased.collect()
}

fn chr(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let refused = |what: String| SqlError::new(SqlState::TOO_LARGE, what);
    let letter = |code: i64| match (code, u32::try_from(code).ok().and_then(char::from_u32)) {
        (0, _) => Err(refused("null character not permitted".to_owned())),
        (_, Some(letter)) => Ok(letter.to_string()),
        _ => Err(refused(format!("requested character not valid for encoding: {code}"))),
    };
    let found = numbers(array)?.into_iter().map(|it| it.map(letter).transpose());
    Ok(Arc::new(found.collect::<Result<StringViewArray, SqlError>>()?))
}

fn to_hex(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let is_bigint = *arrays[0].data_type() == DataType::Int64;
    let digits = |number: i64| {
        let narrow = i32::try_from(number).ok().filter(|_| !is_bigint);
        narrow.map_or_else(|| format!("{number:x}"), |it| format!("{it:x}"))
    };
    let found = numbers(&arrays[0])?.into_iter().map(|it| it.map(digits));
    Ok(Arc::new(found.collect::<StringViewArray>()))
}

fn encoded(types: &[DataType]) -> Option<DataType> {
    let is_bytes = matches!(types[0], DataType::Binary | DataType::Null);
    (is_bytes && types[1].is_string()).then_some(DataType::Utf8View)
}

/// `encode`: bytes as text. Base64 is split into lines.
fn encode(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    const LINE_BYTES: usize = 57;
    let bytes = cast(&arrays[0], &DataType::Binary).map_err(of_arrow)?;
    let names = texts(&arrays[1])?;
    let found = bytes.as_binary::<i32>().iter().zip(&names).map(|(bytes, name)| {
        let (bytes, name) = (bytes?, name?);
        Some(match name.eq_ignore_ascii_case("hex") {
            true => bytes.iter().map(|it| format!("{it:02x}")).collect::<String>(),
            false => bytes.chunks(LINE_BYTES).map(base64).collect::<Vec<_>>().join("\n"),
        })
    });
    Ok(Arc::new(found.collect::<StringViewArray>()))
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |index: usize| usize::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            match place <= three.len() {
                true => text.push(char::from(SIGNS[bits >> (18 - 6 * place) & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_with_capitals_and_bytes_have_letters() {
        assert_eq!(
            ["", "a", "ab", "abc"].map(|it| base64(it.as_bytes())),
            ["", "YQ==", "YWI=", "YWJj"]
        );
        assert_eq!(initcap("hI THOMAS o'neil 2nd"), "Hi Thomas O'Neil 2nd");
    }
}
