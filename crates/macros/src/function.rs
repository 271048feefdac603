//! The function under the attribute, taken apart as far as the attributes need it.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::error::Error;

/// A function without arguments and without generics.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    /// `pub`, `pub(crate)`, or nothing.
    pub(crate) visibility: TokenStream,
    pub(crate) name: Ident,
    /// `-> Type`, or nothing.
    pub(crate) output: TokenStream,
    pub(crate) body: Group,
}

/// An attribute of the function.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// The last part of its path.
    pub(crate) name: String,
    pub(crate) span: Span,
    tokens: [TokenTree; 2],
}

impl Attribute {
    pub(crate) fn tokens(&self) -> TokenStream {
        self.tokens.iter().cloned().collect()
    }
}

/// Reads tokens one after the other.
struct Tokens {
    left: std::iter::Peekable<std::vec::IntoIter<TokenTree>>,
    /// The place of the last token that was taken.
    at: Span,
}

impl Tokens {
    fn new(stream: TokenStream) -> Tokens {
        let mut flat = Vec::new();
        flatten(stream, &mut flat);
        Tokens {
            left: flat.into_iter().peekable(),
            at: Span::call_site(),
        }
    }

    fn next(&mut self) -> Option<TokenTree> {
        let token = self.left.next();
        if let Some(token) = &token {
            self.at = token.span();
        }
        token
    }

    fn next_if(&mut self, f: impl FnOnce(&TokenTree) -> bool) -> Option<TokenTree> {
        self.left.peek().is_some_and(f).then(|| self.next())?
    }

    fn next_group(&mut self, delimiter: Delimiter) -> Option<Group> {
        let is_it = |t: &TokenTree| matches!(t, TokenTree::Group(g) if g.delimiter() == delimiter);
        match self.next_if(is_it) {
            Some(TokenTree::Group(group)) => Some(group),
            _ => None,
        }
    }

    fn error<T>(&self, text: &str) -> Result<T, Error> {
        Err(Error::new(self.at, text))
    }
}

/// Removes the invisible groups in which `macro_rules!` puts its fragments.
fn flatten(stream: TokenStream, to: &mut Vec<TokenTree>) {
    for token in stream {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                flatten(group.stream(), to);
            }
            token => to.push(token),
        }
    }
}

fn is_ident(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == text)
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

impl Function {
    /// # Errors
    ///
    /// If it is no function, or one that cannot be the first goroutine of a run.
    pub(crate) fn parse(item: TokenStream) -> Result<Function, Error> {
        let mut tokens = Tokens::new(item);
        let attributes = parse_attributes(&mut tokens)?;
        let visibility = parse_visibility(&mut tokens);
        refuse_qualifiers(&mut tokens)?;
        if tokens.next_if(|t| is_ident(t, "fn")).is_none() {
            tokens.next();
            return tokens.error("this attribute belongs in front of a function");
        }
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return tokens.error("a function needs a name here");
        };
        if tokens.next_if(|t| is_punct(t, '<')).is_some() {
            return tokens
                .error("the function is called without type arguments: remove the generics");
        }
        let Some(arguments) = tokens.next_group(Delimiter::Parenthesis) else {
            return tokens.error("the arguments of the function are missing here");
        };
        if !arguments.stream().is_empty() {
            return tokens.error("the function is called without arguments: remove them");
        }
        let (output, body) = parse_output_and_body(&mut tokens)?;
        Ok(Function {
            attributes,
            visibility,
            name,
            output,
            body,
        })
    }

    /// Whether the function returns `()`.
    pub(crate) fn returns_nothing(&self) -> bool {
        let tokens: Vec<_> = self.output.clone().into_iter().collect();
        match &tokens[..] {
            [] => true,
            [_, _, TokenTree::Group(g)] => {
                g.delimiter() == Delimiter::Parenthesis && g.stream().is_empty()
            }
            _ => false,
        }
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|a| a.name == name)
    }
}

fn parse_attributes(tokens: &mut Tokens) -> Result<Vec<Attribute>, Error> {
    let mut attributes = Vec::new();
    while let Some(hash) = tokens.next_if(|t| is_punct(t, '#')) {
        let Some(content) = tokens.next_group(Delimiter::Bracket) else {
            return tokens.error("an attribute needs brackets here");
        };
        let path = content.stream().into_iter();
        let path = path.take_while(|t| matches!(t, TokenTree::Ident(_)) || is_punct(t, ':'));
        let name = path.filter(|t| matches!(t, TokenTree::Ident(_))).last();
        attributes.push(Attribute {
            name: name.map_or(String::new(), |n| n.to_string()),
            span: content.span(),
            tokens: [hash, content.into()],
        });
    }
    Ok(attributes)
}

fn parse_visibility(tokens: &mut Tokens) -> TokenStream {
    let Some(public) = tokens.next_if(|t| is_ident(t, "pub")) else {
        return TokenStream::new();
    };
    let place = tokens.next_group(Delimiter::Parenthesis);
    let place = place.map(TokenTree::from);
    [public].into_iter().chain(place).collect()
}

fn refuse_qualifiers(tokens: &mut Tokens) -> Result<(), Error> {
    let refused = [
        (
            "async",
            "goroutines wait without `async`: remove it together with each `.await`, or call \
             `windlass::future::block_on` inside the function",
        ),
        (
            "unsafe",
            "the function is called from safe code: remove `unsafe`",
        ),
        (
            "const",
            "the function is called at run time only: remove `const`",
        ),
        (
            "extern",
            "the function is called from Rust only: remove `extern`",
        ),
    ];
    for (word, text) in refused {
        if tokens.next_if(|t| is_ident(t, word)).is_some() {
            return tokens.error(text);
        }
    }
    Ok(())
}

fn parse_output_and_body(tokens: &mut Tokens) -> Result<(TokenStream, Group), Error> {
    let mut output = Vec::new();
    while let Some(token) = tokens.next() {
        if is_ident(&token, "where") {
            return tokens.error("the function has no generics: remove the `where` clause");
        }
        match token {
            // Braces before the end belong to the type: `-> Code<{ 1 + 1 }>`.
            TokenTree::Group(body)
                if body.delimiter() == Delimiter::Brace && tokens.left.peek().is_none() =>
            {
                return Ok((output.into_iter().collect(), body));
            }
            token => output.push(token),
        }
    }
    tokens.error("the function needs a body")
}
