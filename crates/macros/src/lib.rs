//! The attributes `main` and `test` of the goroutine runtime windlass.
//!
//! windlass re-exports them with its feature `macros`, which is on by default. They are written
//! `#[windlass::main(..)]` and `#[windlass::test(..)]`.
//!
//! Their pages are files of their own, since the doc tests of a macro crate would build windlass once more, for the
//! compiler: windlass includes them among its own doc tests.

mod error;
mod expand;
mod function;
mod options;

use proc_macro::TokenStream;

use options::Kind;

#[doc = include_str!("main.md")]
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Main, args, item)
}

#[doc = include_str!("test.md")]
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Test, args, item)
}
