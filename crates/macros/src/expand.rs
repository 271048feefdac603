//! The code that the attributes write.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::error::Error;
use crate::function::Function;
use crate::options::{Kind, Options, PROMISE, Setter, missing_promise};

/// The function that replaces the one under the attribute. After an error: the error, and the
/// function as it was, so that its absence causes no further errors.
pub(crate) fn expand(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    try_expand(kind, args, item.clone()).unwrap_or_else(|error| {
        let mut tokens = error.to_tokens();
        tokens.extend(item);
        tokens
    })
}

fn try_expand(kind: Kind, args: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let function = Function::parse(item)?;
    check(kind, &function)?;
    let options = Options::parse(kind, args)?;
    Ok(Writer::new(kind, &function, &options).write())
}

/// Errors that concern the function together with the attribute.
fn check(kind: Kind, function: &Function) -> Result<(), Error> {
    if kind == Kind::Main && function.name.to_string() != "main" {
        let text = "`#[windlass::main]` belongs in front of `fn main`; other functions are called by \
                    `Runtime::run`";
        return Err(Error::new(function.name.span(), text));
    }
    if kind == Kind::Test
        && let Some(test) = function.attribute("test")
    {
        let text = "`#[windlass::test]` makes the function a test: remove this attribute";
        return Err(Error::new(test.span, text));
    }
    Ok(())
}

struct Writer<'a> {
    kind: Kind,
    function: &'a Function,
    options: &'a Options,
    /// Where the written code is said to be: at the function's name. The names in it are those of
    /// the attribute's place, as the user's own are.
    span: Span,
}

impl<'a> Writer<'a> {
    fn new(kind: Kind, function: &'a Function, options: &'a Options) -> Writer<'a> {
        Writer {
            kind,
            function,
            options,
            span: Span::mixed_site().located_at(function.name.span()),
        }
    }

    /// Writes the items that stand in place of the function:
    //     #[::core::prelude::v1::test]     for tests
    //     #attributes
    //     pub fn name() -> ::std::process::ExitCode {
    //         fn name() -> Type { body }
    //         let promise = unsafe { ::windlass::Promise::..() };
    //         let built = { let builder = ..; ::windlass::entry::build(builder, promise) };
    //         ::windlass::entry::main(built, name)
    //     }
    fn write(&self) -> TokenStream {
        let mut out = TokenStream::new();
        if self.kind == Kind::Test {
            out.extend(self.code("#[::core::prelude::v1::test]"));
        }
        let attributes = self.function.attributes.iter();
        out.extend(attributes.map(|a| a.tokens()));
        out.extend(self.function.visibility.clone());
        out.extend(self.head());
        if !self.is_unit_test() {
            out.extend(self.code("-> ::std::process::ExitCode"));
        }
        let mut body = self.head();
        body.extend(self.function.output.clone());
        body.extend([TokenTree::from(self.function.body.clone())]);
        body.extend(self.call());
        out.extend([self.group(Delimiter::Brace, body)]);
        out
    }

    /// A test whose function returns nothing, as `should_panic` demands.
    fn is_unit_test(&self) -> bool {
        self.kind == Kind::Test && self.function.returns_nothing()
    }

    /// `fn name()`
    fn head(&self) -> TokenStream {
        let mut head = self.code("fn");
        head.extend([TokenTree::from(self.function.name.clone())]);
        head.extend([self.group(Delimiter::Parenthesis, TokenStream::new())]);
        head
    }

    /// The call that runs the inner function.
    fn call(&self) -> TokenStream {
        // The word in the attribute says what a comment would say.
        let says_why = "#[allow(clippy::undocumented_unsafe_blocks)]";
        let mut code = self.code(&format!("{says_why} let promise ="));
        code.extend(self.promise());
        code.extend(self.code(&format!("; {says_why} let built =")));
        match self.options.sim {
            Some(_) => {
                code.extend(self.at_crate("::sim::Sim::new(promise)"));
                code.extend(self.setters(&self.options.sim_setters));
            }
            None => code.extend(self.built()),
        }
        code.extend(self.code(";"));
        let name = match (self.kind, &self.options.sim, self.is_unit_test()) {
            (Kind::Main, ..) => "::entry::main",
            (Kind::Test, None, false) => "::entry::test",
            (Kind::Test, None, true) => "::entry::unit_test",
            (Kind::Test, Some(_), false) => "::entry::sim_test",
            (Kind::Test, Some(_), true) => "::entry::sim_unit_test",
        };
        code.extend(self.at_crate(name));
        let mut arguments = self.code("built,");
        arguments.extend(self.called());
        code.extend([self.group(Delimiter::Parenthesis, arguments)]);
        code
    }

    /// The function that is run: the inner one, or `|| ::windlass::entry::without_leaks(name)`.
    fn called(&self) -> TokenStream {
        let name = TokenStream::from(TokenTree::from(self.function.name.clone()));
        if self.options.leaks.is_none() {
            return name;
        }
        let mut code = self.code("||");
        code.extend(self.at_crate("::entry::without_leaks"));
        code.extend([self.group(Delimiter::Parenthesis, name)]);
        code
    }

    /// The value of the promise. With the words in the attribute, a block
    /// `unsafe { windlass::Promise::..() }`: lints that concern unsafe code point to that `unsafe`.
    /// Else the constant in the root of the crate.
    fn promise(&self) -> TokenStream {
        let made = self.at_crate(&format!("::Promise::{PROMISE}()"));
        match &self.options.promise {
            Some(word) => promised(word, made),
            None => self.promise_of_crate(),
        }
    }

    /// Writes the constant `PROMISE` in the root of the crate. The inner block finds it before the one in front of it, and that
    /// one if there is none: then the compiler prints the message, at the attribute.
    //     {
    //         #[diagnostic::on_unimplemented(message = "the promise is missing", ..)]
    //         trait IsPromise { .. }
    //         impl IsPromise for ::windlass::Promise { .. }
    //         const PROMISE: () = ();
    //         IsPromise::get({ use crate::*; PROMISE })
    //     }
    fn promise_of_crate(&self) -> TokenStream {
        let [summary, help, note] = missing_promise(self.kind);
        let mut code = self.code(&format!(
            "#[diagnostic::on_unimplemented(message = {summary:?}, label = {help:?}, note = {note:?})]
             trait IsPromise {{ fn get(self) -> Promise; }}
             #[allow(dead_code)] const PROMISE: () = (); type Promise ="
        ));
        code.extend(self.at_crate("::Promise"));
        code.extend(self.code(
            "; impl IsPromise for Promise { fn get(self) -> Promise { self } } IsPromise::get",
        ));
        let here = |token: TokenTree| {
            let mut token = token;
            token.set_span(Span::call_site());
            token
        };
        let found = "{ #[allow(unused_imports)] use crate::*; PROMISE }";
        let found: TokenStream = found.parse().expect("the text is Rust");
        let found = found.into_iter().map(here).collect();
        let mut argument = Group::new(Delimiter::Parenthesis, found);
        argument.set_span(Span::call_site());
        code.extend([TokenTree::from(argument)]);
        [self.group(Delimiter::Brace, code)].into_iter().collect()
    }

    /// A block that ends with the call that builds the runtime. The user's expressions are in no
    /// unsafe block, as the promise says nothing of them.
    fn built(&self) -> TokenStream {
        let mut code = self.code("let builder:");
        code.extend(self.at_crate("::Builder"));
        code.extend(self.code("="));
        code.extend(self.builder());
        code.extend(self.setters(&self.options.setters));
        code.extend(self.code(";"));
        if let (Some((_, path)), Some(word)) = (&self.options.hook, &self.options.promise) {
            code.extend(self.code("let install: unsafe fn() ="));
            code.extend(path.clone().unwrap_or_else(|| self.code("::windlass_hook")));
            code.extend(self.code("::install;"));
            code.extend(promised(word, self.code("install();")));
        }
        code.extend(self.at_crate("::entry::build(builder, promise)"));
        [self.group(Delimiter::Brace, code)].into_iter().collect()
    }

    fn builder(&self) -> TokenStream {
        let given = self.options.builder.clone();
        let code = match (self.kind, &given) {
            (Kind::Main, None) => self.at_crate("::Builder::new()"),
            (Kind::Main, Some(given)) => [self.group(Delimiter::Parenthesis, given.clone())]
                .into_iter()
                .collect(),
            (Kind::Test, None) => self.at_crate("::entry::test_builder()"),
            (Kind::Test, Some(given)) => {
                let mut code = self.at_crate("::entry::in_test");
                code.extend([self.group(Delimiter::Parenthesis, given.clone())]);
                code
            }
        };
        if self.kind == Kind::Test && self.function.attribute("should_panic").is_some() {
            let mut code = code;
            code.extend(self.code(".name_panics(false)"));
            return code;
        }
        code
    }

    fn setters(&self, setters: &[Setter]) -> TokenStream {
        let mut code = TokenStream::new();
        for setter in setters {
            code.extend(self.code("."));
            code.extend([TokenTree::from(setter.name.clone())]);
            let value = setter.value.clone().unwrap_or_else(|| self.code("true"));
            code.extend([self.group(Delimiter::Parenthesis, value)]);
        }
        code
    }

    /// A path in windlass.
    fn at_crate(&self, path: &str) -> TokenStream {
        let mut code = match &self.options.krate {
            Some(path) => path.clone(),
            None => self.code("::windlass"),
        };
        code.extend(self.code(path));
        code
    }

    fn group(&self, delimiter: Delimiter, stream: TokenStream) -> TokenTree {
        let mut group = Group::new(delimiter, stream);
        group.set_span(self.span);
        group.into()
    }

    /// The tokens of a text, at the function's place.
    fn code(&self, text: &str) -> TokenStream {
        let tokens: TokenStream = text.parse().expect("the text is Rust");
        self.placed(tokens)
    }

    fn placed(&self, tokens: TokenStream) -> TokenStream {
        let place = |token| match token {
            TokenTree::Group(group) => self.group(group.delimiter(), self.placed(group.stream())),
            mut token => {
                token.set_span(self.span);
                token
            }
        };
        tokens.into_iter().map(place).collect()
    }
}

/// `unsafe { code }`, with the word of the promise.
fn promised(word: &Ident, code: TokenStream) -> TokenStream {
    let mut block = Group::new(Delimiter::Brace, code);
    block.set_span(word.span());
    let block = [TokenTree::from(word.clone()), block.into()];
    block.into_iter().collect()
}
