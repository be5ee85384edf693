//! "Did you mean": the nearest of some known words to a mistyped one.

/// Longer words are never compared: nobody mistypes them, and the cost grows with the square.
const LONGEST: usize = 64;

/// The candidate that `word` most likely stands for, or `None` where nothing is near. Letters that are
/// missing, wrong, too many or swapped count one each; up to a third of the word may be wrong. Case is
/// ignored. Of two equally near, the first wins, so that the answer follows the order of `candidates`.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let letters: Vec<char> = candidate.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
        let allowed = (word.len().max(letters.len()) / 3).max(1);
        if letters.is_empty() || letters.len() > LONGEST || letters.len().abs_diff(word.len()) > allowed {
            continue;
        }
        let found = distance(&word, &letters);
        // A word of one or two letters is near to everything: only its case may differ.
        let near = found <= allowed && (found == 0 || found < word.len().min(letters.len()));
        if near && best.is_none_or(|(least, _)| found < least) {
            best = Some((found, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, changes and swaps of neighbours between two words (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_finds_its_neighbour_and_a_strange_one_finds_nothing() {
        let keys = ["entrypoint", "env", "user", "workdir", "ports", "params"];
        let table = [
            ("entripoint", Some("entrypoint")),
            ("entrypiont", Some("entrypoint")),
            ("ENTRYPOINT", Some("entrypoint")),
            ("evn", Some("env")),
            ("usr", Some("user")),
            ("port", Some("ports")),
            ("param", Some("params")),
            ("work_dir", Some("workdir")),
            ("x", None),
            ("", None),
            ("banana", None),
        ];
        for (word, expected) in table {
            assert_eq!(nearest(word, keys), expected, "{word:?}");
        }
        assert_eq!(nearest(&"e".repeat(1_000_000), keys), None);
    }
}
