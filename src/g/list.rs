//! Lists of Gs, linked through the G's own link: no allocation, append in constant time.
#![allow(unsafe_code)]

use super::header::GRef;

/// A first-in first-out list of runnable Gs. It owns them: a G is in one list only, and the holder
/// of the list has the right to queue its Gs.
#[derive(Debug, Default)]
pub(crate) struct GList {
    head: Option<GRef>,
    tail: Option<GRef>,
    len: usize,
}

// SAFETY:
// - the Gs in a list are runnable, so only the list's holder accesses their links.
// - a G slot lives as long as the process.
unsafe impl Send for GList {}

impl GList {
    pub(crate) const fn new() -> GList {
        GList {
            head: None,
            tail: None,
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    #[inline]
    pub(crate) fn push(&mut self, g: GRef) {
        g.set_link(None);
        match self.tail {
            Some(tail) => tail.set_link(Some(g)),
            None => self.head = Some(g),
        }
        self.tail = Some(g);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<GRef> {
        let g = self.head?;
        self.head = g.link();
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(g)
    }

    /// Appends all of `other`, in order.
    pub(crate) fn append(&mut self, mut other: GList) {
        let Some(first) = other.head.take() else {
            return;
        };
        match self.tail {
            Some(tail) => tail.set_link(Some(first)),
            None => self.head = Some(first),
        }
        self.tail = other.tail.take();
        self.len += other.len;
    }
}

impl GList {
    /// Appends `g` if there is one.
    pub(crate) fn extend_one(&mut self, g: Option<GRef>) {
        if let Some(g) = g {
            self.push(g);
        }
    }
}
