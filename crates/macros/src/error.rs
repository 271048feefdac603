//! Errors of the attributes, as the compiler reports them.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// A message, and the tokens that it is about.
#[derive(Debug)]
pub(crate) struct Error {
    from: Span,
    to: Span,
    text: String,
}

impl Error {
    pub(crate) fn new(span: Span, text: impl Into<String>) -> Error {
        Error {
            from: span,
            to: span,
            text: text.into(),
        }
    }

    /// `::core::compile_error! { "text" }`, which the compiler underlines from `from` to `to`.
    pub(crate) fn to_tokens(&self) -> TokenStream {
        let punct = |c, spacing, span| {
            let mut punct = Punct::new(c, spacing);
            punct.set_span(span);
            TokenTree::from(punct)
        };
        let mut literal = Literal::string(&self.text);
        literal.set_span(self.to);
        let mut group = Group::new(Delimiter::Brace, TokenTree::from(literal).into());
        group.set_span(self.to);
        [
            punct(':', Spacing::Joint, self.from),
            punct(':', Spacing::Alone, self.from),
            Ident::new("core", self.from).into(),
            punct(':', Spacing::Joint, self.from),
            punct(':', Spacing::Alone, self.from),
            Ident::new("compile_error", self.from).into(),
            punct('!', Spacing::Alone, self.from),
            group.into(),
        ]
        .into_iter()
        .collect()
    }
}
