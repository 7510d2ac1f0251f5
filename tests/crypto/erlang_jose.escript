#!/usr/bin/env escript
%% The other side of test_erlang.py: Erlang's jose opens and verifies what we wrote, and writes the same for us.
%% Arguments: a directory with, for each case I, I.plaintext, I.box, I.sealed, and the PEM keys signing, agreement, receiver.
%% A line on stdout for each case; I.erlang-box and I.erlang-signed are written.
-mode(compile).
-export([main/1, encode/1, decode/1]).

main([Directory | Cases]) ->
    code:add_pathsa(filelib:wildcard("/usr/lib/erlang/lib/*/ebin")),
    {ok, _} = application:ensure_all_started(jose),
    %% OTP 25 has no JSON of its own; headers and keys are objects of plain strings and numbers.
    jose:json_module(?MODULE),
    Read = fun(Name) -> {ok, Data} = file:read_file(filename:join(Directory, Name)), Data end,
    Write = fun(Name, Data) -> ok = file:write_file(filename:join(Directory, Name), Data) end,
    [Signing, Agreement, Receiver] = [jose_jwk:from_pem(Read(Name)) || Name <- ["signing", "agreement", "receiver"]],
    [io:format("~s~n", [jose_jwk:thumbprint(Key)]) || Key <- [Signing, Agreement, Receiver]],
    lists:foreach(
        fun(Case) ->
            Plaintext = Read(Case ++ ".plaintext"),
            {Box, _} = jose_jwk:block_decrypt(Read(Case ++ ".box"), Receiver),
            {IsSigned, Inner, _} = jose_jwk:verify_strict(Read(Case ++ ".sealed"), [<<"ES256">>], Signing),
            {Sealed, _} = jose_jwk:block_decrypt(Inner, Receiver),
            io:format("~s box ~p signature ~p sealed ~p~n", [Case, Box =:= Plaintext, IsSigned, Sealed =:= Plaintext]),
            {_, Ours} = jose_jwe:compact(jose_jwk:box_encrypt(Plaintext, jose_jwk:to_public(Receiver), Agreement)),
            {_, Signed} = jose_jws:compact(jose_jwk:sign(Ours, #{<<"alg">> => <<"ES256">>}, Signing)),
            Write(Case ++ ".erlang-box", Ours),
            Write(Case ++ ".erlang-signed", Signed)
        end,
        Cases
    ).

encode(Map) when is_map(Map) ->
    Members = [[encode(Name), $:, encode(Value)] || {Name, Value} <- lists:sort(maps:to_list(Map))],
    iolist_to_binary([${, lists:join($,, Members), $}]);
encode(Text) when is_binary(Text) -> <<$", Text/binary, $">>;
encode(Number) when is_integer(Number) -> integer_to_binary(Number).

decode(Text) ->
    {Value, _} = value(Text),
    Value.

value(<<$\s, Rest/binary>>) -> value(Rest);
value(<<${, Rest/binary>>) -> members(Rest, #{});
value(<<$", Rest/binary>>) -> list_to_tuple(binary:split(Rest, <<$">>));
value(Text) ->
    {match, [{0, Length}]} = re:run(Text, "^[-+.eE0-9]+"),
    <<Number:Length/binary, Rest/binary>> = Text,
    {Number, Rest}.

members(<<$}, Rest/binary>>, Map) -> {Map, Rest};
members(<<C, Rest/binary>>, Map) when C =:= $,; C =:= $\s -> members(Rest, Map);
members(Text, Map) ->
    {Name, <<$:, Rest/binary>>} = value(Text),
    {Value, Left} = value(Rest),
    members(Left, Map#{Name => Value}).
