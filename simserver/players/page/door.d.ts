/** A client of the players' door for browsers and node (docs/players-door.md). */

export interface WatchedEntity {
  readonly name: string;
  readonly kind: string;
  /** Empty: nobody. */
  readonly owner: string;
  /** Of its authority; with `sub`, its fence. */
  readonly epoch: number;
  readonly sub: number;
  readonly tick: number;
  /** The server's round of ticks in which it was so; rounds follow each other at the tick rate. */
  readonly round: number;
  /** What the world shows: maps are objects if all keys are texts, else `Map`s; bytes are `Uint8Array`s. */
  readonly state: unknown;
}

/** Exactly one of entity, owner, pattern and area. */
export interface Watched {
  entity?: string;
  owner?: string;
  pattern?: string;
  area?: { centre?: number[]; around?: string; radius: number };
  rate_hz?: number;
}

/** A message of the door beside states; its fields are those of the protocol. */
export interface DoorMessage {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface Refusal extends DoorMessage {
  readonly code: string;
  readonly message: string;
}

/** A player's keys, whose private halves cannot be read. */
export interface PlayerKeys {
  readonly signing: CryptoKeyPair;
  readonly agreement: CryptoKeyPair;
  readonly kid: string;
  /** The public halves, as they are registered with an instance. */
  readonly jwks: JsonWebKey[];
}

export function makeKeys(): Promise<PlayerKeys>;
/** A compact JWS (ES256), as homeservers take it for a proof. */
export function sign(statement: object, player: string, keys: PlayerKeys): Promise<string>;

export class Door {
  constructor(url: string, who?: { player?: string; keys?: PlayerKeys | null });
  readonly server: string;
  readonly isOpen: boolean;
  readonly reconnections: number;
  /** Is called with "open", "closed", or the code with which the door refused. */
  onstate: (state: string) => void;
  /** Is called with what is no state: acknowledgements, where an entity went, and the like. */
  onmessage: (message: DoorMessage) => void;
  watch(
    asked: Watched,
    onchange: (entity: WatchedEntity) => void,
    ongone?: (name: string) => void,
    onrefused?: (refusal: Refusal) => void,
  ): () => void;
  /** Whether it was sent: not while the door is closed. */
  send(message: DoorMessage): boolean;
  close(): void;
}

export class Mirror {
  readonly entities: ReadonlyMap<string, WatchedEntity>;
  take(frame: unknown[]): { changed: WatchedEntity[]; left: string[] };
  close(topic: number): string[];
  isShown(name: string, topics: number[]): boolean;
}

/** Throws for what is no CBOR. */
export function decode(bytes: Uint8Array): unknown;
export function encode(value: unknown): Uint8Array;
/** Throws for what is no patch of this value. */
export function patched(value: unknown, patch: unknown): unknown;
