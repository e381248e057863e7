//! Tests of the rules of docs/clients.md before a peer, of the codec, and of the whole surface against a node.

mod codec;
mod node;
mod peer;
mod rules;
