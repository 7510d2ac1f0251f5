/** What there is for one door is in `client.js`; this leads there until the next release. */
export * from "./client.js";
