"""simserver"""
