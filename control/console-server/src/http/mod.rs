//! HTTPS server: connections, authentication, routing and handlers.

mod accounts;
mod body;
mod caller;
mod certificate;
mod connections;
mod console;
mod credentials;
mod document;
mod endpoint;
mod endpoints;
mod groups;
mod headers;
mod lingering;
mod listener;
mod login;
mod machine_consoles;
mod pace;
mod peer;
mod recorded;
mod routes;
mod second_factor;
mod sign_on;
mod topics;
mod watching;

pub(crate) use listener::run;
