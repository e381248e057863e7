module storenode/clients/go

go 1.24
