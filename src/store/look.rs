//! Reads run directories from outside: for status, events, why, logs and gc. Changes nothing, except that
//! [`remove`] removes.
