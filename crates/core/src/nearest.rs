//! The word that somebody may have meant, for errors that can say so.

use crate::limits::NAME_BYTES_MAX;

/// The known word that is most like `word`; `None` if none is like it, which is when more than a third of it is different.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > NAME_BYTES_MAX {
        return None;
    }
    let word: Vec<char> = word.to_lowercase().chars().collect();
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let closer_than = best.map_or(candidate.len().div_ceil(3) + 1, |(distance, _)| distance);
        if let Some(distance) = distance(&word, candidate, closer_than.min(candidate.len().div_ceil(3) + 1)) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// How many letters must be inserted, removed or replaced, whatever their case; `None` as soon as it is clear that so many, or
/// more, are too many.
fn distance(a: &[char], b: &str, too_many: usize) -> Option<usize> {
    let b: Vec<char> = b.to_lowercase().chars().take(NAME_BYTES_MAX).collect();
    if a.len().abs_diff(b.len()) >= too_many {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
        // It never gets less than the least of a row.
        if row.iter().min().is_some_and(|least| *least >= too_many) {
            return None;
        }
    }
    Some(row[b.len()]).filter(|distance| *distance < too_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["video.viewed", "video.opened", "ad.shown", "like"];

    #[test]
    fn a_misspelt_word_is_the_one_it_is_most_like() {
        for (word, meant) in [
            ("video.veiwed", Some("video.viewed")),
            ("Video.Viewed", Some("video.viewed")),
            ("videoviewed", Some("video.viewed")),
            ("video.open", Some("video.opened")),
            ("lik", Some("like")),
            ("lke ", Some("like")),
            ("ad.shown", Some("ad.shown")),
            ("purchase", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, KNOWN), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(NAME_BYTES_MAX + 1), KNOWN), None);
    }
}
