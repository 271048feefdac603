//! Colours for terminals.

use std::fmt::Display;

/// Whether text has colours: ANSI escapes around words, which change nothing else about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// None, for files, pipes and programs.
    #[default]
    Plain,
    /// As terminals understand them.
    Ansi,
}

/// The meaning of a word, which decides how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    None,
    /// A heading.
    Title,
    /// Beside the point, as a CPU that may not be used.
    Dim,
    Good,
    Fair,
    Bad,
    /// The name of a node.
    Node,
    /// A P.
    P,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Title => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Fair => "33",
            Self::Bad => "31",
            Self::Node => "36",
            Self::P => "1;34",
        }
    }

    /// For a place in a row of `n`, nearest first.
    pub(crate) fn of_rank(rank: usize, n: usize) -> Self {
        match rank * 3 {
            0 => Self::Title,
            third if third <= n => Self::Good,
            third if third <= 2 * n => Self::Fair,
            _ => Self::Bad,
        }
    }
}

impl Paint {
    /// A word in colour. Widths are for the caller to fill before: escapes take no room.
    pub(crate) fn ink(self, ink: Ink, text: impl Display) -> String {
        match (self, ink) {
            (Self::Plain, _) | (_, Ink::None) => text.to_string(),
            (Self::Ansi, ink) => format!("\x1b[{}m{text}\x1b[0m", ink.code()),
        }
    }

    /// A heading.
    #[must_use]
    pub fn title(self, text: impl Display) -> String {
        self.ink(Ink::Title, text)
    }

    /// Something that is as it should be.
    #[must_use]
    pub fn good(self, text: impl Display) -> String {
        self.ink(Ink::Good, text)
    }

    /// Something to think about.
    #[must_use]
    pub fn fair(self, text: impl Display) -> String {
        self.ink(Ink::Fair, text)
    }

    /// Something that is wrong.
    #[must_use]
    pub fn bad(self, text: impl Display) -> String {
        self.ink(Ink::Bad, text)
    }

    /// Something beside the point.
    #[must_use]
    pub fn dim(self, text: impl Display) -> String {
        self.ink(Ink::Dim, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Paint::Plain.bad("x"), "x");
        assert_eq!(Paint::Ansi.ink(Ink::None, "x"), "x");
        assert_eq!(Paint::Ansi.bad("x"), "\x1b[31mx\x1b[0m");
    }

    #[test]
    fn ranks_go_from_good_to_bad() {
        let inks: Vec<Ink> = (0..=3).map(|rank| Ink::of_rank(rank, 3)).collect();
        assert_eq!(inks, [Ink::Title, Ink::Good, Ink::Fair, Ink::Bad]);
        assert_eq!(Ink::of_rank(1, 1), Ink::Bad);
    }
}
