//! The messages of the service, as prost's compiler would write them for
//!
//! ```text
//! package windlass.example;
//! message Text { string text = 1; }
//! message Counts { map<string, uint64> words = 1; }
//! service Words {
//!     rpc Count(Text) returns (Counts);
//!     rpc Split(Text) returns (stream Text);
//!     rpc Shout(stream Text) returns (stream Text);
//! }
//! ```

use std::collections::HashMap;

/// The name of the service.
pub(crate) const NAME: &str = "windlass.example.Words";
/// The methods.
pub(crate) const COUNT: &str = "/windlass.example.Words/Count";
pub(crate) const SPLIT: &str = "/windlass.example.Words/Split";
pub(crate) const SHOUT: &str = "/windlass.example.Words/Shout";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Counts {
    #[prost(map = "string, uint64", tag = "1")]
    pub(crate) words: HashMap<String, u64>,
}
