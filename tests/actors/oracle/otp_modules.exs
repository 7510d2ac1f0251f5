# The modules that Elixir documents, and those of kernel and stdlib. Run it with `elixir otp_modules.exs`.
for app <- [:elixir, :logger] do
  {:ok, mods} = (:application.load(app); :application.get_key(app, :modules))
  for m <- Enum.sort(mods), match?("Elixir." <> _, Atom.to_string(m)) do
    case Code.fetch_docs(m) do
      {:docs_v1, _, _, _, %{} = doc, _, _} when map_size(doc) > 0 -> IO.puts("#{app} #{inspect(m)}")
      _ -> :ok
    end
  end
end
for app <- [:kernel, :stdlib] do
  :application.load(app)
  {:ok, mods} = :application.get_key(app, :modules)
  for m <- Enum.sort(mods), do: IO.puts("#{app} #{inspect(m)}")
end
