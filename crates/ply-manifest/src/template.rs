//! Holes in a value: `{name}`, `{member.name}`, `$VAR`, `${VAR}`, and the escapes `{{`, `}}`, `$$`.
//!
//! A value is cut into pieces once. What fills a hole is never cut again, so nothing that comes from outside
//! can open a hole. Source: the manifest reference, "params"; the model reference, "Filling `$VAR`".

/// One piece of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text, escapes undone.
    Text(String),
    /// `{name}` or `{member.name}`, without the braces.
    Hole(String),
    /// `$VAR` or `${VAR}`, without the `$`.
    Var(String),
}

/// Which holes a value may have; the others are literal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holes {
    /// Whether `{}` is active.
    pub braces: bool,
    /// Whether `$` is active.
    pub vars: bool,
}

impl Holes {
    /// Both, as in `[run.env]` under a `[run.params]`, and in a member's `env` and `params`.
    pub const BOTH: Self = Self { braces: true, vars: true };
    /// Only `{}`, as in the value of a param.
    pub const BRACES: Self = Self { braces: true, vars: false };
    /// Only `$`, as in a member's `publish` and `domain`.
    pub const VARS: Self = Self { braces: false, vars: true };
}

/// A value cut into its pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    /// The pieces, in order; no two texts are neighbours.
    pub pieces: Vec<Piece>,
}

/// Why a value can't be cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{` without its `}`.
    #[error("a {{ is never closed")]
    Open,
    /// `}` that closes nothing.
    #[error("a }} closes nothing")]
    Close,
    /// What stands between the braces is no name.
    #[error("{{{0}}} names nothing")]
    Name(String),
    /// `${` without its `}`, or with something that is no name.
    #[error("${{{0} is not the name of a variable in braces")]
    Var(String),
}

impl TemplateError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Open => "write {{ for a literal {".to_owned(),
            Self::Close => "write }} for a literal }".to_owned(),
            Self::Name(_) => "write {{ and }} for literal braces".to_owned(),
            Self::Var(_) => "write ${NAME}, or $$ for a literal $".to_owned(),
        }
    }
}

impl Template {
    /// Cuts a value at its holes.
    pub fn parse(value: &str, holes: Holes) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        let mut rest = value;
        while let Some(at) =
            rest.find(|c| (holes.braces && (c == '{' || c == '}')) || (holes.vars && c == '$'))
        {
            template.text(&rest[..at]);
            let tail = &rest[at + 1..];
            let first = &rest[at..at + 1];
            if let Some(after) = tail.strip_prefix(first) {
                template.text(first);
                rest = after;
                continue;
            }
            rest = match first {
                "}" => return Err(TemplateError::Close),
                "{" => {
                    let end = tail.find('}').ok_or(TemplateError::Open)?;
                    let name = &tail[..end];
                    if !hole_name(name) {
                        return Err(TemplateError::Name(shorten(name)));
                    }
                    template.pieces.push(Piece::Hole(name.to_owned()));
                    &tail[end + 1..]
                }
                _ => {
                    if let Some(braced) = tail.strip_prefix('{') {
                        let end = braced.find('}').ok_or_else(|| TemplateError::Var(shorten(braced)))?;
                        let name = &braced[..end];
                        if var_name(name) != name.len() || name.is_empty() {
                            return Err(TemplateError::Var(shorten(&braced[..=end])));
                        }
                        template.pieces.push(Piece::Var(name.to_owned()));
                        &braced[end + 1..]
                    } else {
                        let end = var_name(tail);
                        if end == 0 {
                            template.text("$");
                        } else {
                            template.pieces.push(Piece::Var(tail[..end].to_owned()));
                        }
                        &tail[end..]
                    }
                }
            };
        }
        template.text(rest);
        Ok(template)
    }

    /// The names in `{}`, in order, each as often as it stands there.
    pub fn holes(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| if let Piece::Hole(name) = p { Some(name.as_str()) } else { None })
    }

    /// The names behind `$`, in order, each as often as it stands there.
    pub fn vars(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| if let Piece::Var(name) = p { Some(name.as_str()) } else { None })
    }

    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }
}

/// The bytes at the start of `text` that are the name of a shell variable.
fn var_name(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.first().is_none_or(u8::is_ascii_digit) {
        return 0;
    }
    bytes.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(bytes.len())
}

/// A param's name, or a member's and a param's with a dot between.
fn hole_name(text: &str) -> bool {
    match text.split_once('.') {
        Some((member, param)) => param_name(member) && param_name(param),
        None => param_name(text),
    }
}

/// Letters, digits, `_` and `-`, the first a letter, digit or `_`; at most 64 bytes.
pub(crate) fn param_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn shorten(text: &str) -> String {
    let mut out: String = text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(40).is_some() {
        out.push('…');
    }
    out
}
