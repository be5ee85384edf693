//! `Depends` and its kin: alternatives of names with an optional version (Debian policy 7.1).

use super::version;
use std::cmp::Ordering;

/// One alternative: `libc6 (>= 2.38)`, `python3:any`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relation<'a> {
    /// The name, without its arch qualifier.
    pub(crate) name: &'a str,
    /// The operator and the version, where one is asked for.
    pub(crate) version: Option<(Operator, &'a str)>,
}

/// How a version is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `<<`
    Less,
    /// `<=`
    LessEqual,
    /// `=`
    Equal,
    /// `>=`
    GreaterEqual,
    /// `>>`
    Greater,
}

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Equal => order.is_eq(),
            Self::GreaterEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
        }
    }
}

impl Relation<'_> {
    /// Whether a package (or a versioned provision) of this version satisfies the relation's version.
    pub(crate) fn accepts(&self, version: &str) -> bool {
        self.version.is_none_or(|(operator, wanted)| operator.holds(version::compare(version, wanted)))
    }
}

/// The alternatives of each comma-separated term. What can't be read as a relation is left out.
pub(crate) fn parse(field: &str) -> Vec<Vec<Relation<'_>>> {
    let terms = field.split(',').map(|term| term.split('|').filter_map(one).collect::<Vec<_>>());
    terms.filter(|alternatives| !alternatives.is_empty()).collect()
}

fn one(text: &str) -> Option<Relation<'_>> {
    let text = text.trim();
    let end = text.find([' ', '(', '[', '<', '\n', '\t']).unwrap_or(text.len());
    let name = text[..end].split(':').next().filter(|n| !n.is_empty())?;
    let version = text[end..].trim_start().strip_prefix('(').and_then(|inside| {
        let inside = inside.split(')').next()?.trim();
        let operators = [
            ("<<", Operator::Less),
            ("<=", Operator::LessEqual),
            (">=", Operator::GreaterEqual),
            (">>", Operator::Greater),
            ("=", Operator::Equal),
            ("<", Operator::LessEqual),
            (">", Operator::GreaterEqual),
        ];
        operators.into_iter().find_map(|(sign, op)| inside.strip_prefix(sign).map(|v| (op, v.trim())))
    });
    Some(Relation { name, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_read_with_alternatives_and_versions() {
        let all = parse("libc6 (>= 2.38), debconf (>= 0.5) | debconf-2.0,\n python3:any, x (= 1) [amd64]");
        assert_eq!(all.len(), 4);
        assert_eq!(all[1][1], Relation { name: "debconf-2.0", version: None });
        assert_eq!(all[2][0].name, "python3");
        assert!(all[0][0].accepts("2.41-12+deb13u5") && !all[0][0].accepts("2.36"));
        assert!(all[3][0].accepts("1") && !all[3][0].accepts("1-1"));
    }
}
