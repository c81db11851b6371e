//! Times of day with their date, as Azure traces write them, to nanoseconds.

/// Nanoseconds from 1970-01-01 to `YYYY-MM-DD HH:MM:SS[.f]`, with 1 to 7 fraction digits and
/// perhaps `+00:00` at the end; `None` for anything else and for years that do not surely fit
/// (before 1970, after 2399).
pub(super) fn ns_since_1970(text: &str) -> Option<u64> {
    let text = text.strip_suffix("+00:00").unwrap_or(text);
    let (text, fraction_ns) = match text.split_once('.') {
        Some((text, fraction)) => (text, fraction_ns(fraction)?),
        None => (text, 0),
    };
    let (date, time) = text.split_once(' ')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    if !(1970..=2399).contains(&year) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_since_1970(year, month, day)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000_000 + fraction_ns)
}

fn fraction_ns(digits: &str) -> Option<u64> {
    let places = u32::try_from(digits.len()).ok().filter(|places| (1..=7).contains(places))?;
    Some(number(digits)? * 10u64.pow(9 - places))
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let february = if leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month = usize::try_from(month.checked_sub(1)?).ok()?;
    if day == 0 || day > *months.get(month)? {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    Some(years + months[..month].iter().sum::<u64>() + day - 1)
}

fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut all = [0; 3];
    for (slot, width) in all.iter_mut().zip(widths) {
        *slot = number(parts.next().filter(|part| part.len() == width)?)?;
    }
    parts.next().is_none().then_some(all)
}

fn number(digits: &str) -> Option<u64> {
    // `parse` alone would take a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::ns_since_1970;

    #[test]
    fn times_are_nanoseconds_since_1970() {
        assert_eq!(ns_since_1970("1970-01-01 00:00:00"), Some(0));
        assert_eq!(ns_since_1970("1970-01-01 00:00:01.5"), Some(1_500_000_000));
        assert_eq!(ns_since_1970("1970-01-01 00:00:00.0000001"), Some(100));
        // `date -u -d '2024-02-29 12:34:56' +%s`
        let leap_day = Some(1_709_210_096_000_000_000);
        assert_eq!(ns_since_1970("2024-02-29 12:34:56"), leap_day);
        assert_eq!(ns_since_1970("2024-02-29 12:34:56+00:00"), leap_day);
        assert!(ns_since_1970("2399-12-31 23:59:59.9999999").is_some());
    }

    #[test]
    fn what_is_no_time_is_none() {
        let bad = [
            "",
            "noon",
            "2023-11-16",
            "2023-11-16 18:17",
            "2023-11-16T18:17:03",
            "2023-02-29 00:00:00",
            "2023-00-01 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-31 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 18:60:00",
            "2023-11-16 18:17:60",
            "2023-11-16 18:17:03.",
            "2023-11-16 18:17:03.12345678",
            "2023-11-16 18:17:03.-1",
            "2023-11-16 +1:17:03",
            "2023-11-16 18:17:03:04",
            "1969-12-31 23:59:59",
            "2400-01-01 00:00:00",
        ];
        for text in bad {
            assert_eq!(ns_since_1970(text), None, "{text:?}");
        }
    }
}
