//! The options in the parentheses of the attributes.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::error::Error;

/// The promise of the caller of `Builder::build`, as a word.
pub(crate) const PROMISE: &str = "no_thread_local_across_waits";

/// Setters of `windlass::Builder`. Those that end with `?` take a `bool`, and the name alone means
/// `true`.
const BUILDER: &[&str] = &[
    "cpu_accounting?",
    "deadlock_detection?",
    "dump_on_sigquit?",
    "flight_recorder",
    "live_metrics?",
    "max_processors",
    "max_threads",
    "name",
    "name_panics?",
    "nodes",
    "numa",
    "page_out_after",
    "pin?",
    "processors",
    "require_io_uring?",
    "schedtrace",
    "shutdown_timeout",
    "stack_size",
    "stall_reports",
    "topology",
];

/// Setters of `windlass::sim::Sim`, in the same form.
const SIM: &[&str] = &[
    "disk",
    "faults",
    "link",
    "may_panic?",
    "no_descriptors_left?",
    "no_goroutines_left?",
    "no_messages_left?",
    "replay",
    "seed",
    "seeds",
    "shorten?",
    "steps",
    "strategy",
    "trace",
];

/// A call of a setter.
#[derive(Debug)]
pub(crate) struct Setter {
    pub(crate) name: Ident,
    /// `None` for `true`.
    pub(crate) value: Option<TokenStream>,
}

/// The options of an attribute.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The word `unsafe` of the promise.
    pub(crate) promise: Option<Ident>,
    /// The word `sim`.
    pub(crate) sim: Option<Ident>,
    pub(crate) setters: Vec<Setter>,
    pub(crate) sim_setters: Vec<Setter>,
    /// The path of windlass in this crate.
    pub(crate) krate: Option<TokenStream>,
    /// The expression of a builder to start from.
    pub(crate) builder: Option<TokenStream>,
    /// The word `leaks`, if the test fails when goroutines are leaked at its end.
    pub(crate) leaks: Option<Ident>,
    /// The word `hook`, if windlass-hook is to be installed, and its path if that was given.
    pub(crate) hook: Option<(Ident, Option<TokenStream>)>,
}

/// The two attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Test,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Main => "windlass::main",
            Kind::Test => "windlass::test",
        }
    }
}

/// One option: a word, with or without `= value`.
struct Part {
    key: Ident,
    value: Option<TokenStream>,
}

impl Options {
    /// # Errors
    ///
    /// If the promise is not written right, or an option is unknown, given twice or out of place.
    pub(crate) fn parse(kind: Kind, args: TokenStream) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut seen: Vec<String> = Vec::new();
        for tokens in split_at_commas(args) {
            if let Some(word) = parse_promise(&tokens)? {
                if options.promise.replace(word.clone()).is_some() {
                    return Err(Error::new(word.span(), "the promise is here twice"));
                }
                continue;
            }
            let part = parse_part(tokens)?;
            let key = part.key.to_string();
            if seen.contains(&key) {
                let text = format!("the option `{key}` is here twice");
                return Err(Error::new(part.key.span(), text));
            }
            seen.push(key);
            options.take(kind, part)?;
        }
        options.check()?;
        Ok(options)
    }

    fn take(&mut self, kind: Kind, part: Part) -> Result<(), Error> {
        let key = part.key.to_string();
        match &*key {
            "crate" => self.krate = Some(part.need_value("a path")?),
            "builder" => self.builder = Some(part.need_value("an expression")?),
            "hook" => {
                if part.value.is_none() && has_no_hook() {
                    let text = "`hook` needs the crate windlass-hook: `cargo add windlass-hook`, with `--path` or \
                                `--git` as for windlass; or `hook = path`, where it has another name";
                    return Err(Error::new(part.key.span(), text));
                }
                self.hook = Some((part.key, part.value));
            }
            "sim" if kind == Kind::Test => {
                part.refuse_value()?;
                self.sim = Some(part.key);
            }
            "leaks" if kind == Kind::Test => {
                part.refuse_value()?;
                self.leaks = Some(part.key);
            }
            _ if find(BUILDER, &key).is_some() => {
                self.setters.push(part.into_setter(find(BUILDER, &key))?);
            }
            _ if kind == Kind::Test && find(SIM, &key).is_some() => {
                self.sim_setters.push(part.into_setter(find(SIM, &key))?);
            }
            PROMISE => {
                let text = format!("write `unsafe({PROMISE})`: it is a promise\n{MEANING}");
                return Err(Error::new(part.key.span(), text));
            }
            _ => {
                let cure = of_tokio(&key).map_or(String::new(), |cure| format!("{cure}; "));
                let text = format!("unknown option `{key}`: {cure}there are {}", known(kind));
                return Err(Error::new(part.key.span(), text));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        let error = |span: Span, text: String| Err(Error::new(span, text));
        if let Some(sim) = &self.sim {
            if let Some(setter) = self.setters.first() {
                let text = format!(
                    "`{}` is a setting of a runtime, and `sim` runs the test in a simulation, \
                     which takes {}",
                    setter.name,
                    list(SIM)
                );
                return error(setter.name.span(), text);
            }
            if self.builder.is_some() || self.hook.is_some() {
                let text = "`builder` and `hook` are for runtimes: remove them, or `sim`";
                return error(sim.span(), text.into());
            }
            return Ok(());
        }
        if let Some(setter) = self.sim_setters.first() {
            let text = format!("`{}` is a setting of simulations: add `sim`", setter.name);
            return error(setter.name.span(), text);
        }
        if let (Some((word, _)), None) = (&self.hook, &self.promise) {
            let text = format!(
                "the promise that `hook` needs covers the functions of windlass-hook as well: write \
                 `unsafe({PROMISE})` in this attribute"
            );
            return error(word.span(), text);
        }
        Ok(())
    }
}

impl Part {
    fn need_value(self, what: &str) -> Result<TokenStream, Error> {
        let (key, span) = (self.key.to_string(), self.key.span());
        self.value
            .ok_or_else(|| Error::new(span, format!("`{key}` needs {what}: `{key} = ..`")))
    }

    fn refuse_value(&self) -> Result<(), Error> {
        match self.value {
            None => Ok(()),
            Some(_) => {
                let text = format!("`{}` takes no value", self.key);
                Err(Error::new(self.key.span(), text))
            }
        }
    }

    /// `entry` is the setter's entry in the list that has it.
    fn into_setter(self, entry: Option<&str>) -> Result<Setter, Error> {
        let name = self.key.clone();
        let value = match entry.is_some_and(|entry| entry.ends_with('?')) {
            true => self.value,
            false => Some(self.need_value("a value")?),
        };
        Ok(Setter { name, value })
    }
}

fn find(list: &'static [&'static str], name: &str) -> Option<&'static str> {
    let mut entries = list.iter();
    entries.find(|e| e.trim_end_matches('?') == name).copied()
}

/// Which option stands for one of `#[tokio::main]` and `#[tokio::test]`.
fn of_tokio(key: &str) -> Option<&'static str> {
    Some(match key {
        "worker_threads" | "core_threads" => "tokio's number of threads is `processors` here",
        "flavor" => "tokio's flavor \"current_thread\" is `processors = 1` here",
        "start_paused" => "time that does not pass by itself is what `#[windlass::test(sim)]` has",
        _ => return None,
    })
}

/// Whether the package that is being compiled certainly does not depend on windlass-hook: its manifest does not name
/// it. Without cargo nothing is known.
fn has_no_hook() -> bool {
    let manifest = || {
        let folder = std::env::var_os("CARGO_MANIFEST_DIR")?;
        std::fs::read_to_string(std::path::Path::new(&folder).join("Cargo.toml")).ok()
    };
    manifest().is_some_and(|text| !text.replace('_', "-").contains("windlass-hook"))
}

fn list(entries: &[&str]) -> String {
    let names: Vec<_> = entries
        .iter()
        .map(|e| format!("`{}`", e.trim_end_matches('?')))
        .collect();
    names.join(", ")
}

fn known(kind: Kind) -> String {
    let own = match kind {
        Kind::Main => String::new(),
        Kind::Test => format!(", `leaks`, `sim` and with it {}", list(SIM)),
    };
    format!("`crate`, `builder`, `hook`, {}{own}", list(BUILDER))
}

/// Says that the promise is missing; what to write; what it means.
pub(crate) fn missing_promise(kind: Kind) -> [String; 3] {
    let name = kind.name();
    [
        format!("`#[{name}]` needs a promise"),
        format!("write `#[{name}(unsafe({PROMISE}))]`"),
        format!(
            "or once for all attributes, in the root of the crate: `const PROMISE: \
             windlass::Promise = unsafe {{ windlass::Promise::{PROMISE}() }};`\n{MEANING}"
        ),
    ]
}

const MEANING: &str = "A goroutine may continue on another thread after each call into windlass. You promise \
    that no goroutine keeps, across such a call, a borrow of a thread-local or a value that belongs to its \
    thread. The compiler cannot check this; windlass's docs/SAFETY.md has an example of each hazard.";

/// The arguments, one list of tokens for each. A comma inside brackets separates nothing, and neither
/// does one among the arguments of a generic function, `f::<A, B>()`.
fn split_at_commas(args: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    // Brackets that are open, from the first one behind `::` on.
    let mut n_open = 0_u32;
    // The two characters before, if they are punctuation.
    let mut before = [' '; 2];
    for token in args {
        let c = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match (c, before) {
            ('<', _) if n_open > 0 => n_open += 1,
            ('<', [':', ':']) => n_open = 1,
            // Not the end of an arrow.
            ('>', [_, last]) if last != '-' && last != '=' => n_open = n_open.saturating_sub(1),
            _ => {}
        }
        before = [before[1], c];
        if c == ',' && n_open == 0 {
            parts.push(Vec::new());
        } else {
            let part = parts.last_mut();
            part.expect("there is one from the start").push(token);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The word `unsafe`, if the tokens are the promise.
fn parse_promise(tokens: &[TokenTree]) -> Result<Option<Ident>, Error> {
    let Some(TokenTree::Ident(word)) = tokens.first() else {
        return Ok(None);
    };
    if word.to_string() != "unsafe" {
        return Ok(None);
    }
    match &tokens[1..] {
        [TokenTree::Group(group)] if is_promise(group) => Ok(Some(word.clone())),
        _ => {
            let text = format!("write `unsafe({PROMISE})`\n{MEANING}");
            Err(Error::new(word.span(), text))
        }
    }
}

fn is_promise(group: &Group) -> bool {
    group.delimiter() == Delimiter::Parenthesis && group.stream().to_string().trim() == PROMISE
}

fn parse_part(tokens: Vec<TokenTree>) -> Result<Part, Error> {
    let mut tokens = tokens.into_iter();
    let key = match tokens.next() {
        Some(TokenTree::Ident(key)) => key,
        other => {
            let span = other.map_or(Span::call_site(), |t| t.span());
            return Err(Error::new(span, "the name of an option is expected here"));
        }
    };
    let value = match tokens.next() {
        None => None,
        Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {
            let value: TokenStream = tokens.collect();
            if value.is_empty() {
                let text = format!("a value is missing after `{key} =`");
                return Err(Error::new(punct.span(), text));
            }
            Some(value)
        }
        Some(other) => {
            let text = format!("an option is written as `{key}` or `{key} = value`");
            return Err(Error::new(other.span(), text));
        }
    };
    Ok(Part { key, value })
}
