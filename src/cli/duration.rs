use jiff::{Span, SpanRelativeTo};

/// The text is no duration that a lease can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text can't be read.
    #[error("expected a duration such as 8h, 30m or 1h30m")]
    Unreadable,
    /// The duration is nothing, or negative.
    #[error("expected a duration longer than nothing")]
    NotPositive,
}

/// Reads a duration such as `8h`, `1h30m` or `2d` (jiff's friendly format; a day has 24 hours) as milliseconds.
pub fn parse_duration_ms(text: &str) -> Result<i64, DurationError> {
    let span: Span = text.parse().map_err(|_| DurationError::Unreadable)?;
    let duration =
        span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| DurationError::Unreadable)?;
    let ms = i64::try_from(duration.as_millis()).map_err(|_| DurationError::Unreadable)?;
    if ms > 0 { Ok(ms) } else { Err(DurationError::NotPositive) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [
            ("8h", 8 * 3_600_000),
            ("30m", 1_800_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("90s", 90_000),
            ("250ms", 250),
            ("PT8H", 8 * 3_600_000),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_no_lease_can_last_is_refused() {
        for text in ["", "8", "soon", "h", "1 month", "99999999999999999999h"] {
            assert_eq!(parse_duration_ms(text), Err(DurationError::Unreadable), "{text}");
        }
        for text in ["0s", "-5m"] {
            assert_eq!(parse_duration_ms(text), Err(DurationError::NotPositive), "{text}");
        }
    }
}
