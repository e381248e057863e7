//! Rows of one SELECT, page by page. Its text is split at words and not parsed.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::convert::from_value;
use crate::errors::{Error, InvalidArgument, Result};
use crate::frames::Params;
use crate::runs::{Run, Runner};
use crate::values::{Object, Value, head};
use crate::waits::{BoxFuture, Steps};

const AFTER: &str = "storeclient_after";
const LIMIT: &str = "storeclient_rows";

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A word that stands alone.
    Word,
    /// A parameter.
    Param,
    Open,
    Close,
    End,
    /// A string, a comment, a name with dots, or any other sign.
    Other,
}

/// Split a text into pieces: kind, start, end.
pub(crate) fn pieces(text: &str) -> Vec<(Piece, usize, usize)> {
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(|one| one.is_ascii_alphanumeric() || *one == b'_');
    let word_end = |mut at: usize| {
        while is_word(at) {
            at += 1;
        }
        at
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let (kind, end) = match bytes[at] {
            quote @ (b'\'' | b'"' | b'`') => (Piece::Other, quoted_end(bytes, at, quote)),
            b'#' => (Piece::Other, rest.find('\n').map_or(bytes.len(), |n| at + n)),
            b'-' | b'/' if rest.starts_with("--") || rest.starts_with("//") => {
                (Piece::Other, rest.find('\n').map_or(bytes.len(), |n| at + n))
            }
            b'/' if rest.starts_with("/*") => {
                (Piece::Other, rest[2..].find("*/").map_or(bytes.len(), |n| at + n + 4))
            }
            b'$' => (Piece::Param, word_end(at + 1)),
            b'[' | b'(' | b'{' => (Piece::Open, at + 1),
            b']' | b')' | b'}' => (Piece::Close, at + 1),
            b';' => (Piece::End, at + 1),
            one if one.is_ascii_alphanumeric() || matches!(one, b'_' | b'.' | b':') => {
                let mut end = at + 1;
                while is_word(end) || matches!(bytes.get(end), Some(b'.' | b':')) {
                    end += 1;
                }
                let alone = text[at..end].bytes().all(|one| one.is_ascii_alphanumeric() || one == b'_');
                (if alone && !one.is_ascii_digit() { Piece::Word } else { Piece::Other }, end)
            }
            _ => (Piece::Other, at + rest.chars().next().map_or(1, char::len_utf8)),
        };
        found.push((kind, at, end));
        at = end;
    }
    found
}

/// Return the place behind a quoted text. Without a closing quote the quote stands alone.
fn quoted_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            one if one == quote => return at + 1,
            _ => at += 1,
        }
    }
    start + 1
}

/// Return the words outside of strings, comments and brackets: text in capitals, start, end.
fn words(text: &str) -> Result<Vec<(String, usize, usize)>, InvalidArgument> {
    let mut depth = 0;
    let mut found = Vec::new();
    for (piece, start, end) in pieces(text) {
        match piece {
            Piece::Open => depth += 1,
            Piece::Close => depth -= 1,
            _ if depth > 0 => {}
            Piece::End => return Err(InvalidArgument::new("one SELECT is read page by page, without a `;`")),
            Piece::Word => found.push((text[start..end].to_ascii_uppercase(), start, end)),
            Piece::Param | Piece::Other => {}
        }
    }
    Ok(found)
}

/// Return what stands before WHERE, and the condition.
fn split_select(text: &str) -> Result<(&str, &str), InvalidArgument> {
    let found = words(text)?;
    if found.first().is_none_or(|(word, _, _)| word != "SELECT") {
        let reason = format!("what is read page by page is a SELECT, not {:?}", head(text));
        return Err(InvalidArgument::new(reason));
    }
    let Some(from) = found.iter().position(|(word, _, _)| word == "FROM") else {
        return Err(InvalidArgument::new("the SELECT has no FROM"));
    };
    for (n, (word, _, end)) in found.iter().enumerate() {
        if is_clause(word, n, from, &text[*end..]) {
            return Err(InvalidArgument::new(format!(
                "{word} has no place in a SELECT that is read page by page: all of its rows come, in the order of their ids"
            )));
        }
    }
    Ok(match found[from + 1..].iter().find(|(word, _, _)| word == "WHERE") {
        Some((_, start, end)) => (&text[..*start], &text[*end..]),
        None => (text, ""),
    })
}

fn is_clause(word: &str, n: usize, from: usize, behind: &str) -> bool {
    match word {
        "SPLIT" | "GROUP" | "HAVING" | "ORDER" | "LIMIT" | "START" | "FETCH" | "TIMEOUT" => {
            n >= from + 2 && !goes_on(behind) // else it is a field
        }
        "VALUE" | "DISTINCT" => n == 1,
        "ONLY" => n == from + 1,
        _ => false,
    }
}

/// Return true if an expression goes on behind its first word.
fn goes_on(behind: &str) -> bool {
    let rest = behind.trim_start();
    let word = rest.bytes().take_while(|one| one.is_ascii_alphanumeric() || *one == b'_').count();
    let operators = ["IN", "NOT", "CONTAINS", "AND", "OR"];
    rest.is_empty()
        || rest.starts_with(|one| "=!<>~+-*/%),.?".contains(one))
        || operators.iter().any(|operator| rest[..word].eq_ignore_ascii_case(operator))
}

/// Return true if a text has BEGIN or COMMIT as a word of its own.
pub(crate) fn has_transaction_words(text: &str) -> bool {
    pieces(text).into_iter().any(|(piece, start, end)| {
        let word = &text[start..end];
        piece == Piece::Word && (word.eq_ignore_ascii_case("BEGIN") || word.eq_ignore_ascii_case("COMMIT"))
    })
}

/// Return the script of the page behind an id.
fn page_of(runner: &Runner, select: &str, params: &Params, page: u32, after: Option<&Value>) -> Result<Run> {
    if page == 0 {
        return Err(InvalidArgument::new("a page has at least one row").under("page").into());
    }
    let given = params.get()?;
    for name in [AFTER, LIMIT] {
        if given.contains_key(name) {
            let error = InvalidArgument::new("the client names its own parameter so");
            return Err(error.under(format_args!("${name}")).into());
        }
    }
    let (head, condition) = split_select(select)?;
    let mut conditions = Vec::new();
    if after.is_some() {
        conditions.push(format!("id > ${AFTER}"));
    }
    if !condition.is_empty() {
        conditions.push(format!("({condition}\n)")); // on a line of its own: the text may end in a comment
    }
    let filter =
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let mut run =
        Run::new(runner.clone(), format!("{head}\n{filter} ORDER BY id LIMIT ${LIMIT}")).repeatable();
    run.params = params.clone();
    run.params.bind(LIMIT, &page);
    if let Some(after) = after {
        run.params.bind(AFTER, after);
    }
    Ok(run)
}

struct Reading {
    runner: Runner,
    select: String,
    params: Params,
    page: u32,
    after: Option<Value>,
    rows: std::vec::IntoIter<Value>,
    is_over: bool,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Ok(Some(row));
            }
            if self.is_over {
                return Ok(None);
            }
            let page = page_of(&self.runner, &self.select, &self.params, self.page, self.after.as_ref())?;
            let Value::Array(rows) = page.value().await? else {
                return Err(Error::broken("the node answered a SELECT with no rows"));
            };
            self.is_over = rows.len() < self.page as usize;
            if let Some(last) = rows.last() {
                match last.get("id") {
                    Some(id @ Value::Record(_)) => self.after = Some(id.clone()),
                    _ => {
                        let reason = "a SELECT that is read page by page has `id` among its fields";
                        return Err(Error::argument(reason));
                    }
                }
            }
            self.rows = rows.into_iter();
        }
    }
}

fn step(mut reading: Reading) -> BoxFuture<(Reading, Option<Result<Value>>)> {
    Box::pin(async move {
        let found = reading.next().await;
        reading.is_over |= found.is_err();
        (reading, found.transpose())
    })
}

/// A stream of rows. Options come before its first row; nothing is sent before that is asked for.
#[must_use = "a stream sends nothing before it is polled"]
pub struct Rows<T> {
    steps: Steps<Reading, Result<Value>>,
    row: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Rows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Rows<T> {
    pub(crate) fn new(runner: Runner, select: String) -> Self {
        let reading = Reading {
            runner,
            select,
            params: Params::default(),
            page: 1000,
            after: None,
            rows: Vec::new().into_iter(),
            is_over: false,
        };
        Self { steps: Steps::new(reading, step), row: PhantomData }
    }

    fn with(self, change: impl FnOnce(&mut Reading)) -> Self {
        Self { steps: self.steps.with(change), row: PhantomData }
    }

    /// Bind a value to `$name` in the SELECT.
    pub fn bind(self, name: &str, value: impl Serialize) -> Self {
        self.with(|reading| reading.params.bind(name, &value))
    }

    /// Set the number of rows in one request. The default is 1000.
    pub fn page(self, rows: u32) -> Self {
        self.with(|reading| reading.page = rows)
    }

    /// Return the next row; `None` behind the last.
    pub async fn next(&mut self) -> Option<Result<T>> {
        std::future::poll_fn(|cx| self.poll_row(cx)).await
    }

    fn poll_row(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.steps.poll_next(cx).map(|found| found.map(|row| Ok(from_value(row?)?)))
    }
}

impl<T: DeserializeOwned> Stream for Rows<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_row(cx)
    }
}

/// Return a text with its parameters under other names. What stands in strings and comments stays.
pub(crate) fn renamed(text: &str, own_name: impl Fn(&str) -> Option<String>) -> String {
    let mut found = String::with_capacity(text.len());
    for (piece, start, end) in pieces(text) {
        let own = if piece == Piece::Param { own_name(&text[start + 1..end]) } else { None };
        match own {
            Some(name) => {
                found.push('$');
                found.push_str(&name);
            }
            None => found.push_str(&text[start..end]),
        }
    }
    found
}

/// Take the parameters of the statements of a transaction into those of all.
pub(crate) fn merge(all: &mut Object, own: &Object, text: &str) -> String {
    let mut names: Vec<(&str, String)> = Vec::new();
    for (name, value) in own {
        let mut taken = name.clone();
        let mut n = 0;
        while all.contains_key(&taken) || (n > 0 && own.contains_key(&taken)) {
            n += 1;
            taken = format!("{name}__{n}");
        }
        all.insert(taken.clone(), value.clone());
        names.push((name, taken));
    }
    renamed(text, |name| names.iter().find(|(one, _)| *one == name).map(|(_, taken)| taken.clone()))
}
