/// The longest duration that is accepted, in milliseconds: a hundred years of 365 days.
///
/// Added to a time of this century, it still fits 64-bit nanoseconds since 1970.
pub const MAX_DURATION_MS: i64 = 36_500 * 86_400_000;

/// The units in the order in which a sum must name them, with their milliseconds.
const UNITS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is not a sum of whole numbers with units, the largest unit first.
    #[error("{0:?} is not a duration: write 8h, 90m, 30s, 250ms, 1d or a sum such as 1h30m")]
    Malformed(String),
    /// The sum is zero.
    #[error("{0:?} is no time at all: the shortest duration is 1ms")]
    Zero(String),
    /// The sum is more than [`MAX_DURATION_MS`].
    #[error("{0:?} is too long: the longest duration is 36500d")]
    TooLong(String),
}

/// Reads a positive duration such as `8h`, `250ms` or `1h30m`, in milliseconds.
pub fn parse_duration_ms(text: &str) -> Result<i64, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total_ms = 0_i64;
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (name, after) = split_where(after, |c| c.is_ascii_digit());
        let (_, unit_ms) =
            units.find(|(unit, _)| *unit == name).filter(|_| !digits.is_empty()).ok_or_else(malformed)?;
        let term_ms =
            digits.parse::<i64>().ok().and_then(|n| n.checked_mul(*unit_ms)).ok_or_else(too_long)?;
        total_ms =
            total_ms.checked_add(term_ms).filter(|&sum| sum <= MAX_DURATION_MS).ok_or_else(too_long)?;
        rest = after;
    }
    match total_ms {
        0 if text.is_empty() => Err(malformed()),
        0 => Err(DurationError::Zero(text.to_owned())),
        _ => Ok(total_ms),
    }
}

/// Writes a duration as [`parse_duration_ms`] reads it, in the largest units: `1m30s`.
pub fn duration_text(duration_ms: i64) -> String {
    let mut text = String::new();
    let mut rest_ms = duration_ms;
    for (unit, unit_ms) in UNITS {
        let count = rest_ms / unit_ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
            rest_ms -= count * unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Splits before the first character that `ends` the part.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_sums_with_units() {
        let cases = [
            ("8h", 28_800_000),
            ("90m", 5_400_000),
            ("30s", 30_000),
            ("250ms", 250),
            ("1d", 86_400_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("1m1ms", 60_001),
            ("0h5s", 5_000),
            ("007s", 7_000),
            ("36500d", MAX_DURATION_MS),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_by_its_fault() {
        let malformed = [
            "", "8", "h", "-5s", "+5s", "1.5h", "8 h", " 8h", "8h ", "8H", "8hours", "1m1h", "1h1h", "1ms1s",
            "1h30", "é", "٣s", "8h-1m", "1µs", "5s\n",
        ];
        for text in malformed {
            assert_eq!(parse_duration_ms(text), Err(DurationError::Malformed(text.into())), "{text}");
        }
        for text in ["0s", "0d0h0m0s0ms", "000ms"] {
            assert_eq!(parse_duration_ms(text), Err(DurationError::Zero(text.into())), "{text}");
        }
        for text in
            ["36501d", "36500d1ms", "9223372036854775807d", "99999999999999999999ms", "9223372036854775807ms"]
        {
            assert_eq!(parse_duration_ms(text), Err(DurationError::TooLong(text.into())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_in_bounds(text in any::<String>()) {
            prop_assert!(parse_duration_ms(&text).map_or(true, |ms| (1..=MAX_DURATION_MS).contains(&ms)));
        }

        #[test]
        fn numbers_and_units_in_any_order_are_in_bounds(text in "([0-9]{0,20}(d|h|m|s|ms)){0,4}") {
            prop_assert!(parse_duration_ms(&text).map_or(true, |ms| (1..=MAX_DURATION_MS).contains(&ms)));
        }

        #[test]
        fn a_duration_that_was_written_is_read_as_the_same(ms in 1..=MAX_DURATION_MS) {
            prop_assert_eq!(parse_duration_ms(&duration_text(ms)), Ok(ms));
        }
    }
}
